#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/workspace.h"
#include "lopt/learner/parameter_server/parameter_model.h"
#include "lopt/lopt/use/tensor_updates.h"

namespace lopt {

// Tensors of one shape, each with its optimizer's state and the number of its updates.
class SteppedTensors {
 public:
  // `rule`, of tensors of so many numbers, must outlive it.
  SteppedTensors(const UpdateRule* rule, int64_t num_steps);

  int64_t count() const { return std::ssize(updates_); }
  // Adds one, which begins with these values.
  void Add(std::span<const float> values);
  std::span<const float> Get(int64_t i, PulledParams which) const;
  void Step(int64_t i, std::span<const double> gradient, float loss, Workspace& scratch);

  // Of the tensors in this order: "<kind>/values/<name>" [n, P], "<kind>/state/<name>" [n, S] and
  // "<kind>/updates/<name>" [n].
  void Save(const std::string& kind, const std::string& name, std::span<const int64_t> order,
            NamedArrays* arrays) const;
  // n tensors from such arrays. Throws Error if one is missing or of another shape, or a number of
  // updates is not in [0, most_updates].
  void Restore(const std::string& kind, const std::string& name, int64_t n, int64_t most_updates,
               const NamedArrays& arrays);

 private:
  StepInfo InfoOf(int64_t i, float loss) const;
  std::span<float> ValuesOf(int64_t i);
  std::span<float> StateOf(int64_t i);

  const UpdateRule* rule_;
  int64_t num_steps_;
  int64_t size_;        // P
  int64_t state_size_;  // S
  std::vector<float> values_;
  std::vector<float> states_;
  std::vector<int64_t> updates_;
};

// The parameters of one server. What it is asked has passed the checks of ParameterModel, those of
// CheckGradients and that all is on this server included. Not thread-safe.
class ParameterStore {
 public:
  // Throws Error if the optimizer is not one for a server: TensorRules refuses it, or it needs
  // num_steps and there is none.
  ParameterStore(std::shared_ptr<const ParameterModel> model, int server);

  // Steps made so far.
  int64_t version() const { return version_; }
  // The server's variables, in the order of the options.
  const std::vector<std::string>& variables() const { return variables_; }
  // How many vectors of the layer exist here.
  int64_t Rows(const std::string& layer) const;

  Array Variable(const std::string& name, PulledParams which) const;
  // [n, width]; vectors that do not exist are made.
  std::vector<float> Vectors(const std::string& layer, std::span<const int64_t> ids,
                             PulledParams which);

  // Throws Error if the next step cannot be made with these: the run has ended, or the optimizer
  // needs the loss.
  void CheckStep(const ParameterGradients& gradients) const;
  // One step of all tensors that have a gradient, with the sum of `pushes` in their order, divided
  // by their number; in float64.
  void Step(std::span<const ParameterGradients* const> pushes);

  // Everything: "version" (int64 scalar), "server" (its number, S), "optimizer" (text), "num_steps"
  // (int64 scalar, where the optimizer needs it), "theta", "key", and the arrays of SteppedTensors
  // of kind "variable" for each variable and of kind "layer" for each layer, in the order of
  // "layer/ids/<name>" [n], which rises.
  NamedArrays Save() const;
  // Throws Error, and is then of no use, unless the arrays are those of Save by a server of the
  // same number, optimizer, num_steps, key and model.
  void Restore(const NamedArrays& arrays);

 private:
  struct Table {
    explicit Table(SteppedTensors stepped) : vectors(std::move(stepped)) {}
    SteppedTensors vectors;
    std::vector<int64_t> ids = {};
    std::unordered_map<int64_t, int64_t> places = {};
  };
  // The sum of what was pushed for a table.
  struct RowSums {
    std::vector<int64_t> ids = {};
    std::unordered_map<int64_t, int64_t> places = {};
    std::vector<double> sums = {};
  };

  int64_t PlaceOf(const EmbeddingLayer& layer, Table* table, int64_t id);
  void StepVariables(std::span<const ParameterGradients* const> pushes, float loss);
  void StepTables(std::span<const ParameterGradients* const> pushes, float loss);
  NamedArrays Identity() const;
  void RestoreTable(const EmbeddingLayer& layer, const NamedArrays& arrays);

  std::shared_ptr<const ParameterModel> model_;
  int server_;
  TensorRules rules_;
  std::vector<std::string> variables_;
  std::map<std::string, SteppedTensors> tensors_;  // of one each
  std::map<std::string, Table> tables_;
  Workspace scratch_;
  int64_t version_ = 0;
};

}  // namespace lopt
