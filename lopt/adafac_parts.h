#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/layout.h"
#include "lopt/adafac_mlp_lopt.h"
#include "lopt/factored.h"

namespace lopt {

// What both implementations of AdafacMLPLOpt read from its options, theta and layouts.

// How many decays there are of each kind, and where their features are among the inputs of the
// network.
struct AdafacFeatures {
  explicit AdafacFeatures(const AdafacMLPLOptOptions& options);

  int64_t m;  // momenta M
  int64_t r;  // means of squares R
  int64_t f;  // factored moments F
  int64_t at_m = 2;
  int64_t at_r = at_m + m;
  int64_t at_mq = at_r + r;
  int64_t at_q = at_mq + m;
  int64_t at_fac_g = at_q + r;
  int64_t at_row = at_fac_g + f;
  int64_t at_col = at_row + f;
  int64_t at_row_rsqrt = at_col + f;
  int64_t at_col_rsqrt = at_row_rsqrt + f;
  int64_t at_fac_m = at_col_rsqrt + f;
  int64_t count = at_fac_m + m;  // features that depend on the parameter
};

// log(1 - d) / 10 of each decay d, in float32: theta's offset is added to it, and ten times that is
// the logarithm of one minus the decay.
std::vector<float> AdafacDecayParameters(const std::vector<double>& initial);

struct AdafacDecays {
  // Theta ends with the offsets.
  AdafacDecays(const AdafacMLPLOptOptions& options, std::span<const float> theta);

  std::vector<float> momentum;
  std::vector<float> rms;
  std::vector<float> adafactor;
};

// Where a tensor of the params and its state begin.
struct AdafacTensor {
  int64_t offset;
  int64_t size;
  int64_t momenta;
  int64_t rms;
  int64_t v;  // v_row, or v of a tensor of fewer than two axes
  int64_t v_col;
  std::optional<FactoredShape> factored;  // of two axes or more
};

Layout AdafacState(const AdafacFeatures& features, const Layout& params);
std::vector<AdafacTensor> AdafacTensors(const Layout& params, const Layout& state);

}  // namespace lopt
