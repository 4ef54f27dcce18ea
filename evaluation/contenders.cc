#include "evaluation/contenders.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <set>

#include "base/error.h"
#include "lopt/registry.h"

namespace lopt {

LearnedContender ContenderOf(std::string name, const ThetaFile& file, std::string source) {
  return {.name = std::move(name),
          .optimizer = OptimizerRegistry().Make(file.learned_optimizer),
          .theta = file.theta,
          .config = file.learned_optimizer,
          .source = std::move(source),
          .trained_horizon = file.trained_horizon};
}

void WarnBeyondHorizon(const LearnedContender& learned,
                       const std::vector<std::pair<std::string, int64_t>>& trainings) {
  if (learned.trained_horizon == 0) return;
  std::vector<std::string> longer;
  for (const auto& [name, steps] : trainings) {
    if (steps > learned.trained_horizon) longer.push_back(fmt::format("{} ({})", name, steps));
  }
  if (longer.empty()) return;
  spdlog::warn(
      "{} was meta-trained on trainings of at most {} inner steps and may blow up in longer ones, "
      "which are: {}",
      learned.name, learned.trained_horizon, fmt::join(longer, ", "));
}

std::vector<std::string> NamesOf(const Contenders& contenders) {
  std::vector<std::string> names;
  for (const Baseline& baseline : contenders.baselines) names.push_back(baseline.name);
  for (const LearnedContender& learned : contenders.learned) names.push_back(learned.name);
  Require(!names.empty(), "evaluation: there is nothing to judge; give a theta file or a baseline");
  std::set<std::string> different;
  for (const std::string& name : names) {
    Require(different.insert(name).second,
            "evaluation: two optimizers are called '{}'; give one another name", name);
  }
  return names;
}

}  // namespace lopt
