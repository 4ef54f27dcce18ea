#pragma once

#include <cstdint>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/lopt/adafac/adafac_numbers_device.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

struct AdafacMLPLOptOptions {
  int64_t hidden_size = 4;
  int64_t hidden_layers = 2;
  double exp_mult = 1e-3;
  double step_mult = 1e-3;
  std::vector<double> initial_momentum_decays = {0.9, 0.99, 0.999};
  std::vector<double> initial_rms_decays = {0.999};
  std::vector<double> initial_adafactor_decays = {0.9, 0.99, 0.999};
  void Visit(FieldVisitor& v);
};

// The learned optimizer "small_fc_lopt" of Metz et al. 2022 (arXiv 2203.11860; AdafacMLPLOpt in
// google/learned_optimization). A network with ReLU between its layers maps the features of each
// parameter to two numbers, and
//   p <- p - o0 exp(o1 exp_mult) step_mult.
// With the M momenta m <- d m + (1 - d) g, the R means of squares r <- d r + (1 - d) g^2 and the F
// factored second moments of lopt/network/factored.h, all already updated, the features are, in
// this order:
//   g, p, m (M), r (R), m q (M), q (R), g f (F), row (F), col (F), rsqrt(row + 1e-8) (F),
//   rsqrt(col + 1e-8) (F), m f' (M),
// where q = rsqrt(r + 1e-6), row and col are the factored moments at the parameter's place, and
// f = f' = row_factors col_factors. A tensor of fewer than two axes keeps v <- d v + (1 - d) (g^2 +
// 1e-30) instead: row = col = v, f = rsqrt(max(v + 1e-9, 1e-9)), f' = rsqrt(v + 1e-6). Each feature
// is divided by sqrt(1e-5 + its mean square over the tensor); the eleven times of MLPLOpt follow.
// Sizes that fit together: R is 1 or M, F is M. The gradient is neither clipped nor checked.
//
// A decay is 1 - exp(10 (log(1 - initial) / 10 + offset)), in float32. Those of r and of the
// factored moments are clipped to [0, 1]; that of a momentum is below 1 and may be negative.
//
// The factored moments depend on the shape: for a square matrix, and for other ties of the largest
// axes, a transposed tensor takes other steps than the tensor. Matrices are [in, out].
//
// Theta: "nn/w<l>" [in, out] and "nn/b<l>" [out] of every layer l, then the offsets
// "momentum_decays" [M], "rms_decays" [R] and "adafactor_decays" [F].
// State, for each tensor: "momenta/<tensor>" [M, shape...], "rms/<tensor>" [R, shape...], and
// "v_row/<tensor>" [F, row...] and "v_col/<tensor>" [F, col...], or "v/<tensor>" [F, shape...].
class AdafacMLPLOpt : public LearnedOptimizer, public AdafacNumbers {
 public:
  // Throws Error as CheckOptions does, and for lists of decays that do not fit together.
  explicit AdafacMLPLOpt(const AdafacMLPLOptOptions& options = {});

  bool sees_shapes() const override { return true; }
  const AdafacMLPLOptOptions& options() const { return options_; }

 private:
  // Weights as those of MLPLOpt; biases and offsets: 0.
  void DoInitTheta(Key key, std::span<float> theta) const override;
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  AdafacMLPLOptOptions options_;
};

}  // namespace lopt
