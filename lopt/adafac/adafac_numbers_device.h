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
// network.
struct AdafacPlaces {
  LOPT_DEVICE AdafacPlaces(int momenta, int squares, int moments)
      : m(momenta), r(squares), f(moments) {}

  int m;  // momenta M
  int r;  // means of squares R
  int f;  // factored moments F
  int at_m = 2;
  int at_r = at_m + m;
  int at_mq = at_r + r;
  int at_q = at_mq + m;
  int at_fac_g = at_q + r;
  int at_row = at_fac_g + f;
  int at_col = at_row + f;
  int at_row_rsqrt = at_col + f;
  int at_col_rsqrt = at_row_rsqrt + f;
  int at_fac_m = at_col_rsqrt + f;
  int count = at_fac_m + m;  // features that depend on the parameter
};

}  // namespace lopt
