#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/evaluation/trials.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// A hand-designed optimizer whose hyperparameters are tuned for every task.
struct Baseline {
  std::string name;                        // "Adam", "Adam-cosine"
  Config optimizer;                        // type and options of a learned optimizer
  std::vector<TunedHyperparameter> tuned;  // the learning rate first

  // The baseline with these values of what is tuned.
  std::shared_ptr<const LearnedOptimizer> Make(std::span<const double> values) const;
  // Whether its learning rate has a schedule over the run.
  bool scheduled() const;
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
