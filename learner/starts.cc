#include "lopt/learner/starts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/learner/worker.h"

namespace lopt {
namespace {

// The theta file that a meta-training of this config began with; empty: it was drawn.
std::string InitThetaOf(const Config& meta_training) {
  const auto& json = meta_training.json();
  const auto found = json.find("init_theta");
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

Eigen::VectorXf StartingTheta(const NamedLearnedOptimizer& learned) {
  const std::string name = fmt::format(
      "'{}'{}", learned.name, learned.source.empty() ? "" : fmt::format(" ({})", learned.source));
  Require(!learned.meta_training.empty(),
          "start: {} does not say how it was meta-trained, so what this began with is not known",
          name);
  const std::string init_theta = InitThetaOf(learned.meta_training);
  Require(init_theta.empty(),
          "start: the meta-training of {} began with the theta file {}; judge that file beside it",
          name, init_theta);
  return learned.optimizer->InitTheta(ThetaKey(KeyFromSeed(static_cast<uint64_t>(learned.seed))));
}

}  // namespace

void AddStarts(EvaluatedOptimizers* optimizers) {
  Require(!optimizers->learned.empty(),
          "start: there is no learned optimizer to judge the start of; give a theta");
  std::vector<NamedLearnedOptimizer> all;
  for (const NamedLearnedOptimizer& learned : optimizers->learned) {
    all.push_back(learned);
    if (learned.tuned) continue;
    const Eigen::VectorXf theta = StartingTheta(learned);
    for (const double step_multiplier : {1.0, 0.3}) {
      all.push_back(StartOf(learned, theta, step_multiplier));
    }
  }
  optimizers->learned = std::move(all);
}

}  // namespace lopt
