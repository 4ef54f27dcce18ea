#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lopt/base/layout.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt.h"
#include "lopt/lopt/network/factored.h"

namespace lopt {

// What the kernel and the device of AdafacMLPLOpt read from its options, theta and layouts. Celo
// has its state, too.

struct AdafacFeatures : AdafacPlaces {
  explicit AdafacFeatures(const AdafacMLPLOptOptions& options);
};

// log(1 - d) / 10 of each decay d, in float32: theta's offset is added to it, and ten times that is
// the logarithm of one minus the decay.
std::vector<float> AdafacDecayParameters(const std::vector<double>& initial);

struct AdafacDecays {
  // Theta ends with the offsets.
  AdafacDecays(const AdafacMLPLOptOptions& options, std::span<const float> theta);
  AdafacDecays(std::vector<float> of_momenta, std::vector<float> of_rms,
               std::vector<float> of_moments)
      : momentum(std::move(of_momenta)), rms(std::move(of_rms)), adafactor(std::move(of_moments)) {}

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

Layout AdafacState(const AdafacPlaces& features, const Layout& params);
// Of a state whose entries from `first` on are those of AdafacState.
std::vector<AdafacTensor> AdafacTensors(const Layout& params, const Layout& state,
                                        size_t first = 0);

}  // namespace lopt
