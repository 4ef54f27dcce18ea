#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lopt/base/fields.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/rate_schedule.h"

namespace lopt {

// Adam and gradient descent computed in float64, of params and state kept in float32: the usual
// optimizers of theta, whose many updates are made of small gradients. They give the same bits on
// every instruction set, and take gradients in float64 (UpdateRule::UpdateInFloat64). Theta is the
// logarithm of the learning rate, log_lr [1]; all else are options. lr below is the learning rate
// times its schedule, t = 1, 2, ... counts updates, and P is the number of params.

// Adam (Kingma and Ba 2015):
//   m <- beta1 m + (1 - beta1) g, v <- beta2 v + (1 - beta2) g^2,
//   p <- p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t) + epsilon_root) + epsilon),
// where m = 0 makes no step. A gradient beyond kLargestAdamGradient counts as that.
// State: "m" and "v", each [P].
struct AdamOptions {
  static constexpr const char* kType = "Adam";
  double learning_rate = 1e-3;
  RateSchedule schedule = RateSchedule::kConstant;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double epsilon_root = 0;
  void Visit(FieldVisitor& v);
};

// Adam with decoupled weight decay (Loshchilov and Hutter 2019): lr weight_decay p is subtracted as
// well.
struct AdamWOptions : AdamOptions {
  static constexpr const char* kType = "AdamW";
  double weight_decay = 1e-4;
  void Visit(FieldVisitor& v);
};

// p <- p - lr g. No state.
struct SGDOptions {
  static constexpr const char* kType = "SGD";
  double learning_rate = 1e-3;
  RateSchedule schedule = RateSchedule::kConstant;
  void Visit(FieldVisitor& v);
};

// b <- momentum b + g, p <- p - lr b. State: "momentum" [P].
struct SGDMOptions : SGDOptions {
  static constexpr const char* kType = "SGDM";
  double momentum = 0.9;
  void Visit(FieldVisitor& v);
};

// The optimizer of such options. The constructor throws Error as CheckOptions does.
template <class Options>
class InFloat64 : public LearnedOptimizer {
 public:
  explicit InFloat64(const Options& options = {});

 private:
  void DoInitTheta(Key key, std::span<float> theta) const override;
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  Options options_;
};

using Adam = InFloat64<AdamOptions>;
using AdamW = InFloat64<AdamWOptions>;
using SGD = InFloat64<SGDOptions>;
using SGDM = InFloat64<SGDMOptions>;

}  // namespace lopt
