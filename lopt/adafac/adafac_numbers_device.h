#pragma once

#include "lopt/base/block_device.h"

namespace lopt {

// The numbers that AdafacMLPLOpt is defined by.
struct AdafacNumbers {
  static constexpr float kNormalizerEpsilon = 1e-5f;
  static constexpr float kRmsEpsilon = 1e-6f;       // under the root of q
  static constexpr float kMomentEpsilon = 1e-8f;    // under those of row and col
  static constexpr float kVectorEpsilon = 1e-9f;    // of f, for tensors of fewer than two axes
  static constexpr float kMomentumEpsilon = 1e-6f;  // of f', for such tensors
};

// How many decays there are of each kind, and where their features are among the inputs of the
// network. Celo has two more: the gradient within kSmallGradient behind the gradient, and g q
// behind g f.
struct AdafacPlaces {
  LOPT_DEVICE AdafacPlaces(int momenta, int squares, int moments, bool with_celos = false)
      : celo(with_celos), m(momenta), r(squares), f(moments) {}

  static constexpr float kSmallGradient = 0.1f;

  bool celo;
  int m;  // momenta M
  int r;  // means of squares R
  int f;  // factored moments F
  int at_p = celo ? 2 : 1;
  int at_m = at_p + 1;
  int at_r = at_m + m;
  int at_mq = at_r + r;
  int at_q = at_mq + m;
  int at_fac_g = at_q + r;
  int at_gq = at_fac_g + f;  // Celo's
  int at_row = at_gq + (celo ? 1 : 0);
  int at_col = at_row + f;
  int at_row_rsqrt = at_col + f;
  int at_col_rsqrt = at_row_rsqrt + f;
  int at_fac_m = at_col_rsqrt + f;
  int count = at_fac_m + m;  // features that depend on the parameter
};

}  // namespace lopt
