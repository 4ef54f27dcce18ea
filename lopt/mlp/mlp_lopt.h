#pragma once

#include <cstdint>

#include "lopt/base/fields.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/mlp/mlp_lopt_step_device.h"
#include "lopt/lopt/network/precision.h"
#include "lopt/lopt/rate_schedule.h"

namespace lopt {

struct MLPLOptOptions {
  int64_t hidden_size = 32;
  int64_t hidden_layers = 2;
  double exp_mult = 1e-3;
  double step_mult = 1e-3;
  bool progress_features = false;
  RateSchedule schedule = RateSchedule::kConstant;
  bool relative_step = false;
  bool relative_to_parameter = false;
  double normalizer_epsilon = 1e-5;
  Precision precision = Precision::kFloat32;
  void Visit(FieldVisitor& v);
};

// The learned optimizer of Metz et al. (google/learned_optimization, MLPLOpt). A network with ReLU
// between its layers maps the 19 features of each parameter to two numbers, and
//   p <- p - o0 exp(o1 exp_mult) step_mult.
// The features are g, p and the six momenta M_k <- d_k M_k + (1 - d_k) g, already updated, each
// divided by sqrt(1e-5 + its mean square over the tensor), then tanh(t / tau - 1) for eleven time
// scales tau, where t is StepInfo::step. A tensor without dimensions has one element. The
// gradient is neither clipped nor checked.
//
// Options, off by default; none has weights or state of its own, but for the features' weights:
//   progress_features      Two features more behind the others, t / T and ln(T) / 10, where T is
//                          StepInfo::num_steps, which is needed.
//   schedule               Factor of the step; needs num_steps if it follows the length of the
//                          training.
//   relative_step          A tensor's step is multiplied by
//                            min(1, rms(g) (1 - d^(t + 1)) / rms(M)),
//                          d and M being the slowest decay, .9999, and its momentum: the gradient's
//                          size beside that of its mean so far. Where the gradient is 0 the factor
//                          is 0. Features are normalised, so without it a tensor's steps keep their
//                          size however small its gradients become.
//   relative_to_parameter  A tensor's step is multiplied by max(rms(p), 1e-3), of p before the step
//                          (the relative step size of Adafactor, Shazeer and Stern 2018, and its
//                          floor, without which a tensor of zeros would stay so).
//   normalizer_epsilon     In place of the 1e-5 above, which hides gradients far below its root.
//   precision              kBfloat16: the inputs of the hidden layers, and their weights but for
//                          those of the time features, are rounded to bfloat16 (Precision). AMX
//                          runs these layers where the processor has it, with the same bits.
//
// Theta: "mlp/linear_<l>/w" [in, out] and "mlp/linear_<l>/b" [out] of every layer l.
// State: the momenta of each tensor, "momenta/<tensor>" [blocks, 6, 16]: element 16 i + j of the
// tensor has its momentum k at [i, k, j]. Places behind the tensor's last element stay 0.
class MLPLOpt : public LearnedOptimizer, public MlpLoptNumbers {
 public:
  // How many features the network sees.
  static int64_t Features(const MLPLOptOptions& options) {
    return kNormalized + kTimes + (options.progress_features ? kProgress : 0);
  }

  explicit MLPLOpt(const MLPLOptOptions& options = {});

  const MLPLOptOptions& options() const { return options_; }
  Precision precision() const override { return options_.precision; }

 private:
  // Weights: normal truncated at two standard deviations, times 1 / sqrt(in). Biases: 0.
  void DoInitTheta(Key key, std::span<float> theta) const override;
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  MLPLOptOptions options_;
};

}  // namespace lopt
