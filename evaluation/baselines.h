#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "lopt/learned_optimizer.h"

namespace lopt {

// A hyperparameter that is tuned, a positive option of the optimizer.
struct TunedHyperparameter {
  std::string name;        // of the option
  double lowest = 0;       // of the values that are tried
  double highest = 0;      // likewise
  bool one_minus = false;  // the option is 1 minus the value: decays
};

// A hand-designed optimizer whose hyperparameters are tuned for every task.
struct Baseline {
  std::string name;                        // "Adam", "Adam-cosine"
  Config optimizer;                        // type and options of a learned optimizer
  std::vector<TunedHyperparameter> tuned;  // the learning rate first

  // The baseline with these values of what is tuned.
  std::shared_ptr<const LearnedOptimizer> Make(std::span<const double> values) const;
  // Whether its learning rate has a schedule over the run.
  bool scheduled() const;
  // Which values are tried first. Of one hyperparameter all `trials`, [trials, 1], from lowest to
  // highest in equal ratios; of several the first half, [ceil(trials / 2), tuned], points that fill
  // the space of their logarithms evenly: u_ij, the part of the way from the lowest of
  // hyperparameter j to its highest, is the fraction of 1/2 + (i + 1) / phi^(j + 1), where phi > 1
  // solves phi^(n + 1) = phi + 1 for n hyperparameters (Roberts 2018, "The unreasonable
  // effectiveness of quasirandom sequences"). Throws Error unless trials >= 2.
  std::vector<std::vector<double>> FirstTrials(int64_t trials) const;
  // The rest, [trials / 2, tuned], around the best of the first: the same points of a smaller box
  // with `best` [tuned] in its middle, which reaches half way to where its next neighbours would be
  // if the first were a grid, ceil(trials / 2)^(-1 / n) of each range. It may leave the range. None
  // of one hyperparameter. Throws Error unless trials >= 2.
  std::vector<std::vector<double>> TrialsAround(std::span<const double> best, int64_t trials) const;
};

// First the classic ones, whose learning rate alone is tuned: SGD, SGDM, Adam, AdamW, and the same
// with cosine decay; momentum is 0.9, Adam's betas are 0.9 and 0.999 with epsilon 1e-8 and no
// epsilon_root, AdamW's weight decay is 0.01. Then the strong ones, which have weight decay or
// betas tuned as well.
const std::vector<Baseline>& Baselines();

// "all", "classic", "strong", "none", or names with commas between them. Throws Error that lists
// the names.
std::vector<Baseline> BaselinesNamed(std::string_view names);

}  // namespace lopt
