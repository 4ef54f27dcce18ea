#include "lopt/tasks/augment/ctaugment/policy.h"

namespace lopt {
namespace {

// Which draw decides what.
constexpr size_t kOperationDraw = 0;
constexpr size_t kBinDraws = 1;       // of each argument
constexpr size_t kArgumentDraws = 3;  // likewise
constexpr size_t kCentreDraws = 5;

PolicyStep StepWithoutArguments(std::span<const float> draws) {
  return {.operation = static_cast<Operation>(double{draws[kOperationDraw]} * kOperationCount),
          .centre_x = draws[kCentreDraws],
          .centre_y = draws[kCentreDraws + 1]};
}

// The bin in which the sum of the probabilities passes `draw`; one that has a probability.
size_t BinOf(double draw, std::span<const double> probabilities) {
  size_t found = 0;
  double sum = 0;
  for (size_t bin = 0; bin < probabilities.size(); ++bin) {
    if (probabilities[bin] == 0) continue;
    found = bin;
    sum += probabilities[bin];
    if (draw < sum) break;
  }
  return found;
}

}  // namespace

PolicyStep ProbeStep(std::span<const float> draws) {
  PolicyStep step = StepWithoutArguments(draws);
  for (size_t a = 0; a < 2; ++a) step.arguments[a] = draws[kArgumentDraws + a];
  return step;
}

PolicyStep TrainStep(std::span<const float> draws, std::span<const double> probabilities) {
  PolicyStep step = StepWithoutArguments(draws);
  const OperationEntry& entry = EntryOf(step.operation);
  for (int a = 0; a < entry.arguments; ++a) {
    const auto bins = static_cast<size_t>(entry.bins[a]);
    const auto first = static_cast<size_t>(FirstBin(step.operation, a));
    const size_t bin = BinOf(draws[kBinDraws + a], probabilities.subspan(first, bins));
    step.arguments[a] =
        (static_cast<double>(bin) + draws[kArgumentDraws + a]) / static_cast<double>(bins);
  }
  return step;
}

void Apply(std::span<const PolicyStep> policy, TranslateUnit translate, const ByteImage& image,
           Workspace& scratch) {
  for (const PolicyStep& step : policy) {
    Apply({.operation = step.operation,
           .levels = {step.arguments[0], step.arguments[1]},
           .centre_x = static_cast<int64_t>(step.centre_x * static_cast<double>(image.width)),
           .centre_y = static_cast<int64_t>(step.centre_y * static_cast<double>(image.height))},
          translate, image, scratch);
  }
}

}  // namespace lopt
