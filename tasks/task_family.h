#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/key.h"
#include "base/layout.h"
#include "base/workspace.h"

namespace lopt {

// Which part of a task's data. `train` is what the inner training sees.
enum class Split { kTrain, kInnerValid, kOuterValid, kTest };
inline constexpr Split kSplits[] = {Split::kTrain, Split::kInnerValid, Split::kOuterValid,
                                    Split::kTest};

std::string_view ToString(Split split);  // "train", "inner_valid", "outer_valid", "test"
// Throws Error that lists the four names.
Split SplitFromString(std::string_view name);

// What to evaluate, and where the results go: n tasks of one family, all arrays C order with n
// rows.
struct TaskEvaluation {
  int64_t rows = 1;                    // n
  std::span<const float> config = {};  // [n, C]
  std::span<const float> params = {};  // [n, P]
  std::span<float> model_state = {};   // [n, M], updated in place
  Split split = Split::kTrain;
  // [n]: row i's data (equal keys, equal data). Not read where `examples` is given.
  std::span<const Key> keys = {};
  // [n, E]: instead, these rows of the data set (see ExampleRange).
  std::span<const int32_t> examples = {};
  std::span<float> losses = {};     // [n], out
  std::span<float> gradients = {};  // [n, P], out; empty: not wanted
  std::span<float> aux = {};        // [n, A], out; empty: not wanted
};

// A family of inner problems with one parameter layout. What differs between two tasks of a family
// is a row of numbers, its config, so a task is plain data. Immutable and thread-safe.
class TaskFamily {
 public:
  virtual ~TaskFamily() = default;
  TaskFamily(const TaskFamily&) = delete;
  TaskFamily& operator=(const TaskFamily&) = delete;

  const Layout& config_layout() const { return layouts_.config; }  // C numbers, may be 0
  const Layout& params_layout() const { return layouts_.params; }  // P
  const Layout& model_state_layout() const {
    return layouts_.model_state;
  }  // M: batch statistics and the like; the optimizer never touches it
  const Layout& aux_layout() const {
    return layouts_.aux;
  }  // A extra outputs, each a scalar ("accuracy")

  // Draws a task. All of these throw Error if a span's size is not the layout's.
  void Sample(Key key, std::span<float> config) const;
  // Draws initial params (and sets the model state).
  void Init(std::span<const float> config, Key key, std::span<float> params,
            std::span<float> model_state) const;
  // Losses and, where asked for, gradients with respect to params and aux outputs.
  void Evaluate(const TaskEvaluation& evaluation, Workspace& scratch) const;

  // The meta-loss of a raw loss. Where NormalizerMaximum() has a value, it is what a loss that is
  // not finite becomes.
  virtual double Normalize(std::span<const float> config, double loss) const;
  virtual std::optional<double> NormalizerMaximum() const { return std::nullopt; }

  // Rows [first, last) of the data set that make up `split`; {0, 0} for families without a data
  // set.
  virtual std::pair<int64_t, int64_t> ExampleRange(Split split) const;

  // How many replicas one Evaluate should get for best speed: 1 for native tasks, kAllRows for
  // torch.
  static constexpr int64_t kAllRows = -1;
  virtual int64_t PreferredRows() const { return 1; }

 protected:
  struct Layouts {
    Layout config = {};
    Layout params = {};
    Layout model_state = {};
    Layout aux = {};
  };
  explicit TaskFamily(Layouts layouts) : layouts_(std::move(layouts)) {}

 private:
  // Sizes are checked. Default: nothing to draw.
  virtual void DoSample(Key key, std::span<float> config) const;
  virtual void DoInit(std::span<const float> config, Key key, std::span<float> params,
                      std::span<float> model_state) const = 0;
  // Families that have no data set get no `examples`.
  virtual void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const = 0;

  Layouts layouts_;
};

}  // namespace lopt
