#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/layout.h"
#include "lopt/base/parallel.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// Updates of tensors that lie apart, where they lie: what the optimizers for LibTorch and PyTorch
// are made of. Every tensor is a problem of its own for the learned optimizer.

// A learned optimizer with its theta, bound to each shape of tensor that was asked for.
class TensorRules {
 public:
  // `learned_optimizer`: a type of OptimizerRegistry(), with options. Throws Error if theta has not
  // its size or is not finite, or it does not treat each tensor by itself.
  TensorRules(const Config& learned_optimizer, Eigen::VectorXf theta);

  // What it was made of.
  const LearnedOptimizer& optimizer() const { return *optimizer_; }
  const Eigen::VectorXf& theta() const { return theta_; }  // [D]

  // For tensors of this shape, [spatial..., in, out] if the optimizer sees shapes. A rule that goes
  // by names (Celo2) takes one of fewer than two axes for a bias. Valid as long as this object.
  // Not thread-safe.
  const UpdateRule& For(const Shape& shape);

 private:
  std::shared_ptr<const LearnedOptimizer> optimizer_;
  Eigen::VectorXf theta_;
  std::map<Shape, std::unique_ptr<UpdateRule>> by_shape_;
};

// The root of the mean square of AdamW's steps beside its learning rate, about: 0.34 to 0.09 over
// trainings of a classifier of two layers, 245 steps at rates of 1e-3 to 1e-2.
inline constexpr double kAdamWStep = 0.2;

// What is made of a step. With p the params before it, u what the rule makes of them, and r the
// root of the mean square of u - p, they become p + lr (u - p) - lr weight_decay (r / kAdamWStep)
// p, in float32, but keep their value where skip_zero_gradients and the gradient is exactly 0. r is
// the size of the rule's own steps, with its schedule; so weight_decay means about what it means in
// AdamW.
struct StepOptions {
  double lr = 1;                     // multiplies the step; positive
  double weight_decay = 0;           // at least 0
  bool skip_zero_gradients = false;  // whether such elements keep their value

  // Whether the step is the rule's own.
  bool plain() const { return lr == 1 && weight_decay == 0 && !skip_zero_gradients; }
};

// One tensor's update, in place.
struct TensorUpdate {
  const UpdateRule* rule;           // as TensorRules::For gives it
  StepInfo info;                    // the number of the step, and what else the rule is told
  StepOptions options;              // what is made of the step
  std::span<const float> gradient;  // [P], of the tensor
  std::span<float> params;          // [P]
  std::span<float> state;           // [S], of the rule's state_layout()
};

// One update on the calling thread. The part of the params that weight decay took. Throws Error as
// UpdateRule::Update does.
double RunUpdate(const TensorUpdate& update, Workspace& scratch);

// What became of some updates.
struct UpdateReport {
  std::vector<int64_t> left;   // numbers of those that left their params as they were, in order
  std::vector<double> decays;  // of each, the part of the params that weight decay took
};

// The part of the params that a step's weight decay should not exceed.
inline constexpr double kLargeDecay = 1e-3;

// Runs updates, with the threads and the memory for them, which it keeps. Results do not depend on
// the number of threads. Not thread-safe.
class TensorUpdater {
 public:
  // A tensor whose step would make finite params not finite keeps its params, not its state.
  // Throws Error as UpdateRule::Update does.
  UpdateReport Update(std::span<const TensorUpdate> updates, int threads);

  // The numbers of those of the arrays with an element that is not finite, in order.
  std::vector<int64_t> NotFinite(std::span<const std::span<const float>> arrays, int threads);

 private:
  // Calls `work` on so many threads, where `elements` are worth waking them.
  void Run(int64_t elements, int threads, const std::function<void()>& work);

  WorkspacePool workspaces_;
  std::optional<ThreadPool> pool_;
};

}  // namespace lopt
