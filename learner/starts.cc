#include "lopt/learner/starts.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/learner/worker.h"

namespace lopt {
namespace {

Eigen::VectorXf StartingTheta(const NamedLearnedOptimizer& learned) {
  const std::string name = fmt::format(
      "'{}'{}", learned.name, learned.source.empty() ? "" : fmt::format(" ({})", learned.source));
  Require(!learned.meta_training.empty(),
          "start: {} does not say how it was meta-trained, so its seed is not known", name);
  return learned.optimizer->InitTheta(ThetaKey(KeyFromSeed(static_cast<uint64_t>(learned.seed))));
}

}  // namespace

void AddStarts(EvaluatedOptimizers* optimizers) {
  Require(!optimizers->learned.empty(),
          "start: there is no learned optimizer to judge the start of; give a theta");
  std::vector<NamedLearnedOptimizer> all;
  for (const NamedLearnedOptimizer& learned : optimizers->learned) {
    all.push_back(learned);
    if (learned.tuned || learned.unknown_length) continue;
    const Eigen::VectorXf theta = StartingTheta(learned);
    all.push_back(StartOf(learned, theta, 1));
    // Steps of an optimizer that keeps an average are not multiplied.
    if (!IsUnknownLength(learned)) all.push_back(StartOf(learned, theta, 0.3));
  }
  optimizers->learned = std::move(all);
}

}  // namespace lopt
