#pragma once

#include <Eigen/Core>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "evaluation/baselines.h"
#include "lopt/learned_optimizer.h"

namespace lopt {

// A learned optimizer with its weights, under the name that results give it.
struct LearnedContender {
  std::string name;
  std::shared_ptr<const LearnedOptimizer> optimizer;
  Eigen::VectorXf theta;    // [D]
  Config config = {};       // type and options of `optimizer`, where it is to be written
  std::string source = {};  // the file that theta is from, for people
};

// Who is judged.
struct Contenders {
  std::vector<LearnedContender> learned = {};
  std::vector<Baseline> baselines = {};
};

// In the order of results: baselines first. Throws Error if there is none or two have one name.
std::vector<std::string> NamesOf(const Contenders& contenders);

}  // namespace lopt
