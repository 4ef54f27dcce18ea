#pragma once

#include <array>
#include <cstdint>

#include "base/fields.h"
#include "lopt/learned_optimizer.h"

namespace lopt {

struct MLPLOptOptions {
  int64_t hidden_size = 32;
  int64_t hidden_layers = 2;
  double exp_mult = 1e-3;
  double step_mult = 1e-3;
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
// Theta: "mlp/linear_<l>/w" [in, out] and "mlp/linear_<l>/b" [out] of every layer l.
// State: the momenta of each tensor, "momenta/<tensor>" [blocks, 6, 16]: element 16 i + j of the
// tensor has its momentum k at [i, k, j]. Places behind the tensor's last element stay 0.
class MLPLOpt : public LearnedOptimizer {
 public:
  static constexpr int kMomenta = 6;
  static constexpr int kBlock = 16;
  static constexpr int kNormalized = 2 + kMomenta;  // features that depend on the parameter
  static constexpr int kTimes = 11;
  static constexpr std::array<float, kMomenta> kDecays = {0.1f, 0.5f, 0.9f, 0.99f, 0.999f, 0.9999f};
  static constexpr std::array<float, kTimes> kTimeScales = {1,    3,    10,    30,    100,   300,
                                                            1000, 3000, 10000, 30000, 100000};
  static constexpr float kNormalizerEpsilon = 1e-5f;

  // The plain implementation is the oracle of the fast one. They agree to rounding and share the
  // layout of the state, so that each can go on where the other stopped.
  enum class Implementation { kFast, kReference };

  explicit MLPLOpt(const MLPLOptOptions& options = {},
                   Implementation implementation = Implementation::kFast);

 private:
  // Weights: normal truncated at two standard deviations, times 1 / sqrt(in). Biases: 0.
  void DoInitTheta(Key key, std::span<float> theta) const override;
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  MLPLOptOptions options_;
  Implementation implementation_;
};

}  // namespace lopt
