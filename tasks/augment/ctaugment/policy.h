#pragma once

#include <cstdint>
#include <span>

#include "lopt/base/workspace.h"
#include "lopt/tasks/augment/ctaugment/operations.h"
#include "lopt/tasks/augment/ctaugment/rates.h"

namespace lopt {

// An operation of a policy: which, its arguments in [0, 1), and where a cutout is, as parts of the
// width and the height.
struct PolicyStep {
  Operation operation = Operation::kIdentity;
  double arguments[2] = {};
  double centre_x = 0;
  double centre_y = 0;
};

// How many uniform numbers make a step.
inline constexpr int64_t kDrawsPerStep = 7;

// To try out: every operation equally often, every argument uniform on [0, 1).
PolicyStep ProbeStep(std::span<const float> draws);
// To train with: the bin of an argument is drawn with its probability (BinProbabilities), the
// argument is uniform in it.
PolicyStep TrainStep(std::span<const float> draws, std::span<const double> probabilities);

// Applies the steps one after the other.
void Apply(std::span<const PolicyStep> policy, TranslateUnit translate, const ByteImage& image,
           Workspace& scratch);

}  // namespace lopt
