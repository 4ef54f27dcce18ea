#include "lopt/lopt/adafac/adafac_parts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace lopt {
namespace {

std::vector<float> Decays(const std::vector<double>& initial, const float* offsets) {
  std::vector<float> decays = AdafacDecayParameters(initial);
  for (float& decay : decays) decay = 1.0f - std::exp(10.0f * (decay + *offsets++));
  return decays;
}

void ClipToUnit(std::vector<float>& decays) {
  for (float& decay : decays) decay = std::clamp(decay, 0.0f, 1.0f);
}

}  // namespace

std::vector<float> AdafacDecayParameters(const std::vector<double>& initial) {
  std::vector<float> parameters;
  for (const double decay : initial) {
    parameters.push_back(std::log(1.0f - static_cast<float>(decay)) / 10.0f);
  }
  return parameters;
}

AdafacFeatures::AdafacFeatures(const AdafacMLPLOptOptions& options)
    : AdafacPlaces(static_cast<int>(options.initial_momentum_decays.size()),
                   static_cast<int>(options.initial_rms_decays.size()),
                   static_cast<int>(options.initial_adafactor_decays.size())) {}

AdafacDecays::AdafacDecays(const AdafacMLPLOptOptions& options, std::span<const float> theta) {
  const AdafacFeatures features(options);
  const float* offsets = theta.last(features.m + features.r + features.f).data();
  momentum = Decays(options.initial_momentum_decays, offsets);
  rms = Decays(options.initial_rms_decays, offsets + features.m);
  adafactor = Decays(options.initial_adafactor_decays, offsets + features.m + features.r);
  ClipToUnit(rms);
  ClipToUnit(adafactor);
}

Layout AdafacState(const AdafacPlaces& features, const Layout& params) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const LayoutEntry& entry : params.entries()) {
    tensors.emplace_back("momenta/" + entry.name, Copies(features.m, entry.shape));
    tensors.emplace_back("rms/" + entry.name, Copies(features.r, entry.shape));
    if (entry.shape.size() < 2) {
      tensors.emplace_back("v/" + entry.name, Copies(features.f, entry.shape));
    } else {
      const FactoredShape factored(entry.shape);
      tensors.emplace_back("v_row/" + entry.name, Copies(features.f, factored.row));
      tensors.emplace_back("v_col/" + entry.name, Copies(features.f, factored.col));
    }
  }
  return Layout(std::move(tensors));
}

std::vector<AdafacTensor> AdafacTensors(const Layout& params, const Layout& state, size_t first) {
  std::vector<AdafacTensor> tensors;
  const LayoutEntry* next = state.entries().data() + first;
  for (const LayoutEntry& entry : params.entries()) {
    AdafacTensor tensor{.offset = entry.offset,
                        .size = entry.size,
                        .momenta = next[0].offset,
                        .rms = next[1].offset,
                        .v = next[2].offset,
                        .v_col = 0,
                        .factored = std::nullopt};
    next += 3;
    if (entry.shape.size() >= 2) {
      tensor.factored.emplace(entry.shape);
      tensor.v_col = next->offset;
      ++next;
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace lopt
