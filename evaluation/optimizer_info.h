#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/evaluation/evaluated_optimizers.h"

namespace lopt {

// One optimizer of an evaluation, for its manifest and its tables.
struct OptimizerInfo {
  std::string name = {};                // as in the results
  std::optional<Config> baseline = {};  // Baseline::Definition
  // Of a learned optimizer:
  std::optional<std::string> theta = {};         // the file that its weights are from
  std::optional<std::string> copy = {};          // of them, in the directory
  std::optional<Config> learned_optimizer = {};  // type and options
  std::optional<bool> tuned = {};  // true: its steps are tuned (evaluated_optimizers.h)
  // The weights are what the meta-training with this seed that made `theta` began with.
  std::optional<int64_t> start_seed = {};
  std::optional<double> step_multiplier = {};  // not 1: what its steps are multiplied by
  std::optional<TaskSteps> trained_on = {};    // none: unknown

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("name", name);
    visit("baseline", baseline);
    visit("theta", theta);
    visit("copy", copy);
    visit("learned_optimizer", learned_optimizer);
    visit("tuned", tuned);
    visit("start_seed", start_seed);
    visit("step_multiplier", step_multiplier);
    visit("trained_on", trained_on);
  }
};

// In the order of results.
std::vector<OptimizerInfo> InfoOf(const EvaluatedOptimizers& optimizers);

}  // namespace lopt
