#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/learned_optimizer.h"

namespace lopt {

// A hand-designed optimizer whose learning rate is tuned for every task. Momentum is 0.9, Adam's
// betas are 0.9 and 0.999 with epsilon 1e-8 and no epsilon_root, AdamW's weight decay is 0.01.
struct Baseline {
  std::string name;         // "Adam", "Adam-cosine"
  std::string type;         // of the learned optimizer that it is an instance of
  double weight_decay = 0;  // of Adam's types
  bool cosine = false;      // the learning rate falls to 0 along a half cosine
  double lowest = 0;        // of the learning rates that are tried
  double highest = 0;       // of them

  // The baseline with this learning rate.
  std::shared_ptr<const LearnedOptimizer> Make(double learning_rate) const;
  // `trials` learning rates from lowest to highest in equal ratios. Throws Error unless trials >=
  // 2.
  std::vector<double> LearningRates(int64_t trials) const;
};

// SGD, SGDM, Adam, AdamW, and the same with cosine decay.
const std::vector<Baseline>& Baselines();

// "all", "none", or names with commas between them. Throws Error that lists the names.
std::vector<Baseline> BaselinesNamed(std::string_view names);

}  // namespace lopt
