#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "lopt/base/config.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/network/precision.h"

namespace lopt {

// What an update may know of the training run around it.
struct StepInfo {
  int64_t step = 0;       // updates made so far with this state: 0 at the first
  int64_t num_steps = 0;  // length of the run; 0 if unknown
  float loss = 0;         // the training loss whose gradient is applied
};

// An ordinary optimizer for params of one layout: a LearnedOptimizer with its theta bound.
// Immutable, thread-safe.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;

  const Layout& params_layout() const { return params_layout_; }  // P
  // S numbers between two updates; nothing is hidden elsewhere.
  const Layout& state_layout() const { return state_layout_; }

  // Throws Error if a span's size is not its layout's, as Update does.
  void InitState(const StepInfo& info, std::span<const float> params, std::span<float> state) const;
  // One update in place, which reads nothing but what it is given and takes no memory but scratch.
  // Denormal numbers are zeros to it, whatever they are to the calling thread.
  // `params` is 64-byte aligned for best speed; any alignment works. Throws
  // Error also where the optimizer needs the length of the run and `info.step` is not below
  // `info.num_steps`.
  void Update(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
              std::span<float> state, Workspace& scratch) const;
  // The same with a gradient in float64. A rule that computes in float64 takes it, and denormal
  // numbers, as they are; others take it rounded to float32.
  void UpdateInFloat64(const StepInfo& info, std::span<const double> gradient,
                       std::span<float> params, std::span<float> state, Workspace& scratch) const;
  // The learning rate of an update, to report it; 0 if the rule has none.
  virtual double LearningRate(const StepInfo& /*info*/) const { return 0; }
  // The params that a training stands for after an update, to judge and to keep: `params`, where
  // gradients are taken, or an average of them in `state`. [P], in one of the two; which one does
  // not depend on theta.
  std::span<const float> EvalParams(std::span<const float> params,
                                    std::span<const float> state) const;

 protected:
  // The layouts of the params that it steps and of its own state.
  UpdateRule(Layout params, Layout state)
      : params_layout_(std::move(params)), state_layout_(std::move(state)) {}

 private:
  // Sizes are checked. Default: zeros.
  virtual void DoInitState(const StepInfo& info, std::span<const float> params,
                           std::span<float> state) const;
  // Tensors may have any rank and no elements; a zero gradient must leave params and state finite,
  // also from a state of zeros.
  virtual void DoUpdate(const StepInfo& info, std::span<const float> gradient,
                        std::span<float> params, std::span<float> state,
                        Workspace& scratch) const = 0;
  // As UpdateInFloat64; sizes are checked. Default: DoUpdate with the rounded gradient.
  virtual void DoUpdateInFloat64(const StepInfo& info, std::span<const double> gradient,
                                 std::span<float> params, std::span<float> state,
                                 Workspace& scratch) const;
  // Sizes are checked. Default: the params.
  virtual std::span<const float> DoEvalParams(std::span<const float> params,
                                              std::span<const float> state) const;

  // Throws Error as Update does.
  void CheckUpdate(const StepInfo& info, size_t gradient, size_t params, size_t state) const;

  friend class LearnedOptimizer;

  Layout params_layout_;
  Layout state_layout_;
  std::string needs_num_steps_;  // the optimizer's
};

// Whether a training stands for the params that the rule steps. Changed steps would not reach an
// average of them in the state.
bool StepsMakeParams(const UpdateRule& rule);
// Throws Error, in which `who` speaks, unless they do.
void RequireStepsMakeParams(const UpdateRule& rule, const std::string& who);

// A map from weights theta to an ordinary optimizer. Optimizers without a network (Adam, SGDM) are
// the case where theta is their hyperparameters. Immutable, thread-safe.
class LearnedOptimizer {
 public:
  virtual ~LearnedOptimizer() = default;
  LearnedOptimizer(const LearnedOptimizer&) = delete;
  LearnedOptimizer& operator=(const LearnedOptimizer&) = delete;

  const Layout& theta_layout() const { return theta_layout_; }  // D
  // What OptimizerRegistry() made it from, every key resolved; empty where it was made otherwise.
  virtual Config config() const { return {}; }

  // What in the type or its options makes updates need StepInfo::num_steps, such as "LearnableAdam
  // with schedule 'cosine'"; empty if they do not.
  const std::string& needs_num_steps() const { return needs_num_steps_; }

  // Whether updates need StepInfo::loss.
  virtual bool needs_loss() const { return false; }
  // Of the state, the first so many numbers belong to the run and to no tensor: they follow from
  // steps, losses and the run's length alone.
  virtual int64_t run_state_size() const { return 0; }

  // Whether the steps of a tensor depend on its shape, not on its elements alone. The axes of
  // tensors are then to be in the order [spatial..., in, out].
  virtual bool sees_shapes() const { return false; }

  // The coarsest numbers that its updates multiply, so how far rounding may take a step.
  virtual Precision precision() const { return Precision::kFloat32; }

  // A theta [D] to begin meta-training with, drawn with the key.
  Eigen::VectorXf InitTheta(Key key) const;
  // Throws Error if theta does not have D numbers. Packs the weights, so bind once and update
  // often.
  std::unique_ptr<UpdateRule> Bind(const Layout& params, std::span<const float> theta) const;
  // The state that the rule of any theta has for such params, without binding one.
  Layout StateLayout(const Layout& params) const;

 protected:
  // The layout of theta, and what makes updates need the length of the run, if anything does.
  explicit LearnedOptimizer(Layout theta, std::string needs_num_steps = "")
      : theta_layout_(std::move(theta)), needs_num_steps_(std::move(needs_num_steps)) {}

 private:
  virtual void DoInitTheta(Key key, std::span<float> theta) const = 0;
  virtual std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                             std::span<const float> theta) const = 0;

  Layout theta_layout_;
  std::string needs_num_steps_;
};

}  // namespace lopt
