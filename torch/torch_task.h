#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/tensorboard.h"
#include "lopt/tasks/derivatives.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// Tensors with the names they get in the params layout, in its order.
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// What a task starts from. A list of params converts to it.
struct TorchStart {
  // Not explicit, so that a list of params will do.
  TorchStart(NamedTensors params, NamedTensors model_state = {})
      : params(std::move(params)), model_state(std::move(model_state)) {}
  NamedTensors params;       // what is trained; not empty
  NamedTensors model_state;  // batch statistics and the like
};

// What a loss function is given: n replicas.
struct TorchEvaluation {
  std::vector<torch::Tensor> params;       // [n, shape of the tensor], in init's order
  std::vector<torch::Tensor> model_state;  // likewise
  torch::Tensor config;                    // [n, C]
  Split split = Split::kTrain;             // whose examples are evaluated
  std::span<const Key> keys;  // [n]: equal keys, equal data; may be empty where there are examples
  torch::Tensor examples;     // int64 [n, E]: rows of the data set; undefined if there is none
  bool aux_wanted = false;    // whether TorchLoss::aux is read
  // Where all these tensors are, and what the loss function returns must be; it makes its other
  // tensors there or, by UniformTensor and its like, on the host, and moves them.
  torch::Device device = torch::kCPU;
};

// What a loss function returns; a tensor of losses converts to it.
struct TorchLoss {
  // Not explicit, so that a tensor of losses will do.
  TorchLoss(torch::Tensor losses, torch::Tensor aux = {},
            std::vector<torch::Tensor> model_state = {})
      : losses(std::move(losses)), aux(std::move(aux)), model_state(std::move(model_state)) {}
  torch::Tensor losses;  // [n]
  torch::Tensor aux;     // [n, A], or undefined where not wanted
  torch::Tensor logits;  // [n, E, K], of a family that has classes (TaskParts::classes)
  torch::Tensor labels;  // likewise, int64 [n, E]
  // The new one, as given; read on Split::kTrain alone. Empty: it stays as it is.
  std::vector<torch::Tensor> model_state;
};

// How a loss function sees the rows of an evaluation.
enum class TorchRows {
  kTogether,  // all at once, as above: the fastest for small tasks
  kInTurn,    // one at a time, as above with n = 1: the fastest for large tasks
  kOneByOne,  // one replica at a time and no dimension for it: no [n] in any shape above
};

// kTogether below 50 million TaskParts::flops, kInTurn from there on: whichever is faster for a
// network of convolutions or linear layers (figures in docs/performance.md).
TorchRows RowsBySize(double flops);

// A family of tasks written with torch tensors. Its user gives two functions, which must be
// thread-safe, must not use torch's own generators (only keys, see below) and must not change their
// arguments:
// - init(key, config [C]) draws the params of one task, and its model state if it has one. Names
//   and shapes are those that it returns for a config of zeros; they make up the layouts. All are
//   float32.
// - loss(evaluation) gives the losses of n replicas. Replica i's loss, aux and model state may
//   depend on row i of the arguments alone. Gradients come from autograd.
// and the other parts of a family: data set, aux outputs, normalizer, config. Draws of configs are
// added by overriding DoSample as in any TaskFamily. Torch runs on the calling thread alone: making
// a family sets torch's number of threads to 1. Where the BLAS is not thread-safe (torch/blas.h)
// one thread at a time calls them. What the functions throw as a torch error is thrown as Error.
class TorchTaskFamily : public TaskFamily, public TaskDerivatives {
 public:
  // init above.
  using InitFunction = std::function<TorchStart(Key key, const torch::Tensor& config)>;
  // loss above.
  using LossFunction = std::function<TorchLoss(const TorchEvaluation& evaluation)>;
  // Pictures of one replica.
  using ShowFunction = std::function<std::vector<Pictures>(const TorchEvaluation& evaluation)>;
  // `show` draws one replica, which it is given as `loss` would be; none: there is nothing to show.
  // Throws Error if `parts` names params or a model state: those are init's.
  TorchTaskFamily(InitFunction init, LossFunction loss, TaskParts parts = {},
                  TorchRows rows = TorchRows::kTogether, ShowFunction show = {});

  // Derivatives for backpropagation, by autograd (tasks/derivatives.h).
  void Differentiate(const TaskEvaluation& at, const Outer& outer, std::span<float> d_params,
                     std::span<float> d_model_state, Workspace& scratch) const override;

  // On emulated devices, whose memory is the host's, and on NVIDIA GPUs. Throws Error if LibTorch
  // has no CUDA or finds no GPU.
  bool EvaluatesOn(const Device& device) const override;

  // What the loss of one replica is computed by, on a batch of Split::kTrain: its params and the
  // operations on tensors, as LibTorch traces them, for TensorBoardWriter::WriteGraph. An operation
  // that is given params of a layer, "layer/w", is in the layer's box. Evaluates the loss once.
  // Throws Error as an evaluation does.
  std::vector<GraphNode> Graph() const;

  // The function that it was given.
  const LossFunction& loss() const { return loss_; }

  // All rows at once, or one, as TorchRows says.
  int64_t PreferredRows() const override { return rows_ == TorchRows::kTogether ? kAllRows : 1; }

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
  std::vector<Pictures> DoShow(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  // The tensors of all rows, whose number is the one dimension of `lead`, or of one, `lead` being
  // empty.
  TorchEvaluation View(const TaskEvaluation& evaluation, torch::IntArrayRef lead) const;
  void EvaluateRows(const TaskEvaluation& evaluation, torch::IntArrayRef lead) const;

  InitFunction init_;
  LossFunction loss_;
  TorchRows rows_;
  ShowFunction show_;
};

// Images [count, channels, height, width] as pictures of this name.
Pictures ToPictures(std::string name, const torch::Tensor& images);

// Tensors whose numbers are functions of a key alone, those of base/key.h: float32 and, for
// RandintTensor, int64 in [low, high).
torch::Tensor UniformTensor(Key key, torch::IntArrayRef shape);
// Standard normal.
torch::Tensor NormalTensor(Key key, torch::IntArrayRef shape);
// Integers in [low, high).
torch::Tensor RandintTensor(Key key, int32_t low, int32_t high, torch::IntArrayRef shape);
// The same with one more dimension in front, [n, shape]: row i is that of keys[i].
torch::Tensor UniformTensor(std::span<const Key> keys, torch::IntArrayRef shape);
// Standard normal.
torch::Tensor NormalTensor(std::span<const Key> keys, torch::IntArrayRef shape);
// Integers in [low, high).
torch::Tensor RandintTensor(std::span<const Key> keys, int32_t low, int32_t high,
                            torch::IntArrayRef shape);

}  // namespace lopt
