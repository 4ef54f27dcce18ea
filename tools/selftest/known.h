#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/config.h"

namespace lopt {

// What the program is known to do. The numbers are in known.inc, which `lopt selftest
// --print-known` writes.

// Parameters after a few steps of an optimizer with its initial theta.
struct KnownSteps {
  const char* type;
  std::vector<float> params;
};

// The meta-training of the preset `smoke`.
struct KnownTraining {
  std::vector<float> weights;  // some of theta's
  struct Bits {
    const char* isa;
    uint64_t hash;  // of all of theta
  };
  std::vector<Bits> bits;
};

const std::vector<KnownSteps>& KnownOptimizerSteps();
const KnownTraining& KnownMetaTraining();

// The optimizer of a type as it is known: with its defaults, over momentum where it is over
// another, and with Adam for vectors.
Config KnownConfig(const std::string& type);

// The same as this program computes it now, on the instruction set in use.
std::vector<float> RunOptimizerSteps(const std::string& type);
// How far from `known` a parameter may be: a thousandth of the longest way of one in its tensor.
// Throws Error that names the parameter farthest beyond it.
void CheckOptimizerSteps(const KnownSteps& known);

// FNV-1a of their bytes.
uint64_t HashOf(std::span<const float> values);
// Those of `theta` that KnownTraining keeps.
std::vector<float> SomeWeights(std::span<const float> theta);
// How far from the known ones they may be on another system: a fifth of an update of theta.
inline constexpr double kWeightTolerance = 2e-4;

// known.inc of this program.
std::string PrintKnown();

}  // namespace lopt
