#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lopt {

// The name of what every baseline has tuned first.
inline constexpr const char* kLearningRate = "learning_rate";
// The name of what the steps of a learned optimizer are multiplied by.
inline constexpr const char* kStepMultiplier = "step_multiplier";

// A hyperparameter that is tuned, a positive number.
struct TunedHyperparameter {
  std::string name;        // of the optimizer's option, or kStepMultiplier
  double lowest = 0;       // of the values that are tried
  double highest = 0;      // likewise
  bool one_minus = false;  // the option is 1 minus the value: decays
};

// Which values are tried first. Of one hyperparameter all `trials`, [trials, 1], from lowest to
// highest in equal ratios; of several the first half, [ceil(trials / 2), tuned], points that fill
// the space of their logarithms evenly: u_ij, the part of the way from the lowest of hyperparameter
// j to its highest, is the fraction of 1/2 + (i + 1) / phi^(j + 1), where phi > 1 solves
// phi^(n + 1) = phi + 1 for n hyperparameters (Roberts 2018, "The unreasonable effectiveness of
// quasirandom sequences"). Throws Error unless trials >= 2.
std::vector<std::vector<double>> FirstTrials(const std::vector<TunedHyperparameter>& tuned,
                                             int64_t trials);
// The rest, [trials / 2, tuned], around the best of the first: the same points of a smaller box
// with `best` [tuned] in its middle, which reaches half way to where its next neighbours would be
// if the first were a grid, ceil(trials / 2)^(-1 / n) of each range. It may leave the range. None
// of one hyperparameter. Throws Error unless trials >= 2.
std::vector<std::vector<double>> TrialsAround(const std::vector<TunedHyperparameter>& tuned,
                                              std::span<const double> best, int64_t trials);

}  // namespace lopt
