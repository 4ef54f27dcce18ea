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

// A hand-designed optimizer, tuned for every task or taken as it is.
struct Baseline {
  std::string name;                        // "Adam", "Adam-cosine"
  Config optimizer;                        // type and options of a learned optimizer
  std::vector<TunedHyperparameter> tuned;  // the learning rate first; empty: taken as it is
  bool random_search = false;              // tuned by RandomTrials, else by NextTrials

  // The baseline with these values of what is tuned.
  std::shared_ptr<const LearnedOptimizer> Make(std::span<const double> values) const;
  // Whether its learning rate has a schedule over the run.
  bool scheduled() const;
  // {"optimizer": type and every option, "tuned": the ranges of what is tuned, by name}, and
  // "search": "random" where that is so.
  Config Definition() const;
  // The option learning_rate, which is what tuning replaces.
  double learning_rate() const;
};

// First the classic ones, whose learning rate alone is tuned: SGD, SGDM, Adam, AdamW, and the same
// with cosine decay; momentum is 0.9, Adam's betas are 0.9 and 0.999 with epsilon 1e-8 and no
// epsilon_root, AdamW's weight decay is 0.01. Then the strong ones, which have weight decay or
// betas tuned as well. Last the untuned ones, in which nothing is: Adam-untuned is Adam at 0.001;
// opt_list-first the first of the settings of Metz et al. 2020 ("Using a thousand optimization
// tasks to learn hyperparameter search strategies"); NAdamW-AlgoPerf the self-tuning baseline of
// AlgoPerf (Dahl et al. 2023); ScheduleFree-untuned has the defaults of Defazio et al. 2024;
// Prodigy has its authors' settings, the rate 1 and cosine decay; Muon-untuned steps matrices at
// 0.03 and what else there is, by AdamW, at 0.003.
const std::vector<Baseline>& Baselines();

// "all", "classic", "strong", "untuned", and names, with commas between them, in this order; or
// "none". Throws Error that lists the names, and if one is there twice.
std::vector<Baseline> BaselinesNamed(std::string_view names);

}  // namespace lopt
