#pragma once

#include "lopt/base/fields.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/rate_schedule.h"

namespace lopt {

// Hand-designed optimizers whose hyperparameters are the theta to be learned, each in a logarithm
// so that any real number is valid. Metz et al., google/learned_optimization.
//
// Their learning rates have a schedule; one that follows the length of the training needs it
// (StepInfo::num_steps).
//
// Constructors throw Error as CheckOptions does.

struct LearnableSGDOptions {
  double learning_rate = 0.01;
  RateSchedule schedule = RateSchedule::kConstant;
  void Visit(FieldVisitor& v);
};

// p <- p - exp(log_lr) g. Theta: log_lr [1]. No state.
class LearnableSGD : public LearnedOptimizer {
 public:
  explicit LearnableSGD(const LearnableSGDOptions& options = {});

 private:
  void DoInitTheta(Key key, std::span<float> theta) const override;
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  LearnableSGDOptions options_;
};

struct LearnableSGDMOptions {
  double learning_rate = 0.01;
  double momentum = 0.9;
  RateSchedule schedule = RateSchedule::kConstant;
  void Visit(FieldVisitor& v);
};

// b <- g + momentum b; p <- p - exp(log_lr) b with momentum = 1 - exp(one_minus_momentum). Theta:
// log_lr [1], one_minus_momentum [1]. State: "momentum/<tensor>", shaped as the tensor.
class LearnableSGDM : public LearnedOptimizer {
 public:
  explicit LearnableSGDM(const LearnableSGDMOptions& options = {});

 private:
  void DoInitTheta(Key key, std::span<float> theta) const override;
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  LearnableSGDMOptions options_;
};

struct LearnableAdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double epsilon_root = 1e-8;
  RateSchedule schedule = RateSchedule::kConstant;
  double weight_decay = 0;
  void Visit(FieldVisitor& v);
};

// Adam (Kingma and Ba 2015) with epsilon_root under the root and decoupled weight decay (AdamW,
// Loshchilov and Hutter 2019): p <- (1 - lr weight_decay) p - lr mhat / (sqrt(vhat + epsilon_root)
// + epsilon), where lr has the schedule in it. Theta: log_lr, one_minus_beta1, one_minus_beta2,
// log_epsilon, each [1] and the logarithm of the number it names; betas stay from 0 to the largest
// float32 below 1. epsilon_root and weight_decay are fixed; the JAX package has 1e-8 for the first.
// State: "m/<tensor>" of all tensors, then "v/<tensor>", shaped as the tensors.
class LearnableAdam : public LearnedOptimizer {
 public:
  explicit LearnableAdam(const LearnableAdamOptions& options = {});

 private:
  void DoInitTheta(Key key, std::span<float> theta) const override;
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  LearnableAdamOptions options_;
};

}  // namespace lopt
