#pragma once

#include <torch/optim/optimizer.h>
#include <torch/optim/serialize.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/lopt/theta_file.h"

namespace lopt::torch_optim {

// What a gradient does that is not finite (in float32) in some element; a step with it would spoil
// all elements of its tensor for good. kError: an Error, nothing is changed. kSkip: the tensor is
// left as it is, state and step count included, and skipped() is one higher. A loss that is needed
// and not finite is as if no gradient were: it would spoil all tensors.
enum class NonFinite { kError, kSkip };
inline constexpr Named<NonFinite> kNonFinites[] = {{NonFinite::kError, "error"},
                                                   {NonFinite::kSkip, "skip"}};

// What a param group may set. A learned optimizer has no learning rate of its own: `lr` is a factor
// of its step, so 1 is the optimizer as it was trained, and torch::optim::LRScheduler works on it.
struct LearnedOptimizerOptions
    : public torch::optim::OptimizerCloneableOptions<LearnedOptimizerOptions> {
  // Factor of every step, at least 0.
  TORCH_ARG(double, lr) = 1.0;
  // Decoupled from the gradient: each step also subtracts lr * weight_decay * (r / 0.2) * p, where
  // r is the root of the mean square of the tensor's step before lr. That of AdamW's steps is about
  // 0.2 of its learning rate, so that the usual 0.01 means about the same here. A value that takes
  // more than 0.1 % of a tensor in a step is warned of once (TORCH_WARN).
  TORCH_ARG(double, weight_decay) = 0.0;
  // What a gradient does that is not finite.
  TORCH_ARG(NonFinite, non_finite) = NonFinite::kError;
  // Else every element takes a step, also one whose gradient is 0 (a row of an embedding that no
  // example of the batch used): its momenta, the other elements and the parameter itself move it.
  // If set, elements whose gradient is exactly 0 keep their value in that step, weight decay
  // included; their state is updated.
  TORCH_ARG(bool, skip_zero_gradients) = false;
  // Whether the learned optimizer sees parameters as vectors, whatever their shape. Celo2 steps
  // vectors by Adam, and so it should tables of embeddings, which have two axes.
  TORCH_ARG(bool, as_vectors) = false;
  // The number of steps of the training; 0: not known. Learned optimizers with a schedule that
  // follows it, or with features of progress, need it: a step that is not below it is an Error. It
  // may be set higher on the way, for a training that is to go on. Others do without it.
  TORCH_ARG(int64_t, num_steps) = 0;
  // The number of examples of a batch; 0: not known. It changes no step, but the first one warns
  // where it is far from all that the optimizer was trained on.
  TORCH_ARG(int64_t, batch_size) = 0;

 public:
  // `lr`, for torch::optim::LRScheduler.
  double get_lr() const override { return lr_; }
  // Sets it; a value that is not valid is an Error of the next step.
  void set_lr(double lr) override { lr_ = lr; }
};

// What belongs to one parameter.
struct LearnedOptimizerParamState
    : public torch::optim::OptimizerCloneableParamState<LearnedOptimizerParamState> {
  TORCH_ARG(int64_t, step) = 0;          // updates made so far
  TORCH_ARG(torch::Tensor, state) = {};  // float32 [S]: the state of the update rule
};

// A trained optimizer in place of torch::optim::Adam in a LibTorch training loop.
//
// Parameters: CPU, strided, of any shape, float32 or float64. Gradients: dense. One that is
// undefined leaves its parameter and that parameter's step count as they are. Every parameter is a
// problem of its own for the update rule, of the parameter's elements in C order, so results do not
// depend on strides. An optimizer that sees shapes (lopt::LearnedOptimizer::sees_shapes:
// AdafacMLPLOpt, Celo2) is given a parameter of two axes or more in the order of axes that it was
// trained with: torch's [out, in, spatial...] as [spatial..., in, out]. Its state is of that order.
// Steps are computed in float32 by the kernels of lopt/, in place where the parameter is contiguous
// float32; the state is float32 as well. For float64 parameters the step is the change that the
// parameter and gradient make when rounded to float32, as coarse as float32's spacing at the
// parameter, and is added in float64. Results do not depend on the number of threads; large sets of
// parameters, and the pieces of large tensors, are shared among as many as torch has
// (at::get_num_threads).
//
// The first step warns (TORCH_WARN) of num_steps above all that the optimizer was trained on
// (ThetaFile::trained_horizon), beyond which it may lose what it had gained, and of num_steps,
// batch_size, parameters or tensors that are far from all that it was trained on
// (ThetaFile::trained_range). Where num_steps did not say so, the first step beyond that horizon
// warns, once.
//
// torch::save and torch::load keep the state, step counts and options of all groups, but for
// batch_size and for a num_steps that the optimizer has which loads them; training goes on with the
// same bits on the same instruction set (base/isa.h).
//
// Throws Error, from a constructor, step, save or load, if a parameter is on another device,
// sparse, of another type, or given twice, a gradient is sparse, of another shape or not finite, a
// loss is needed and missing or not finite, an option is negative or not finite, num_steps is
// needed and is 0 or not above a parameter's step, a group has the options of another optimizer, or
// an archive does not fit. Then nothing has been changed.
class LearnedOptimizer : public torch::optim::Optimizer {
 public:
  // `theta_file.learned_optimizer` names a type of OptimizerRegistry(). Throws Error also if that
  // optimizer does not treat each tensor by itself.
  LearnedOptimizer(std::vector<torch::optim::OptimizerParamGroup> param_groups,
                   const ThetaFile& theta_file, const LearnedOptimizerOptions& defaults = {});
  // The same with one group of these parameters.
  LearnedOptimizer(std::vector<torch::Tensor> params, const ThetaFile& theta_file,
                   const LearnedOptimizerOptions& defaults = {});
  // ReadThetaFile(path), which also checks the file's golden steps. Where a file does not name its
  // optimizer, give ReadThetaFile's result to a constructor.
  static LearnedOptimizer FromFile(std::vector<torch::optim::OptimizerParamGroup> param_groups,
                                   const std::string& path,
                                   const LearnedOptimizerOptions& defaults = {});
  // The same with one group of these parameters.
  static LearnedOptimizer FromFile(std::vector<torch::Tensor> params, const std::string& path,
                                   const LearnedOptimizerOptions& defaults = {});
  // Moves the state; what was moved from may only be destroyed.
  LearnedOptimizer(LearnedOptimizer&&) noexcept;
  ~LearnedOptimizer() override;

  // One update of every parameter that has a gradient. The closure, where given, computes the
  // gradients and returns the loss, which is handed on; without one the result is undefined.
  torch::Tensor step(LossClosure closure = nullptr) override;

  // How often a tensor was left as it is: because its gradient or a loss that is needed was not
  // finite, or because finite numbers would have become others. In the last case its state and its
  // step count go on, and the first is warned of (TORCH_WARN).
  int64_t skipped() const;

  // Throws Error if the archive is of another optimizer or theta, or of groups, parameters or
  // shapes other than these.
  void load(torch::serialize::InputArchive& archive) override;
  // Writes state, step counts and options of all groups.
  void save(torch::serialize::OutputArchive& archive) const override;

 private:
  int64_t StepsOf(const torch::Tensor& param) const;  // updates of it so far

  struct Rules;
  std::unique_ptr<Rules> rules_;
};

}  // namespace lopt::torch_optim
