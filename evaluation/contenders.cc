#include "evaluation/contenders.h"

#include <set>

#include "base/error.h"

namespace lopt {

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
