#include "lopt/learner/starts.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/learner/worker.h"

namespace lopt {
namespace {

Eigen::VectorXf StartingTheta(const NamedLearnedOptimizer& learned) {
  return learned.optimizer->InitTheta(ThetaKey(KeyFromSeed(static_cast<uint64_t>(learned.seed))));
}

}  // namespace

void AddStarts(EvaluatedOptimizers* optimizers) {
  Require(!optimizers->learned.empty(),
          "start: there is no learned optimizer to judge the start of; give a theta");
  std::vector<NamedLearnedOptimizer> all;
  std::vector<std::string> unknown;
  for (const NamedLearnedOptimizer& learned : optimizers->learned) {
    all.push_back(learned);
    if (learned.tuned || learned.unknown_length) continue;
    if (learned.meta_training.empty()) {
      unknown.push_back(
          fmt::format("'{}'{}", learned.name,
                      learned.source.empty() ? "" : fmt::format(" ({})", learned.source)));
      continue;
    }
    const Eigen::VectorXf theta = StartingTheta(learned);
    all.push_back(StartOf(learned, theta, 1));
    if (HasScalableSteps(learned)) all.push_back(StartOf(learned, theta, 0.3));
  }
  if (!unknown.empty()) {
    const bool one = unknown.size() == 1;
    const std::string why =
        fmt::format("{} {} not say how {} meta-trained, so the seed is not known",
                    fmt::join(unknown, ", "), one ? "does" : "do", one ? "it was" : "they were");
    Require(all.size() > optimizers->learned.size(), "start: {}", why);
    spdlog::warn("No start is judged of these: {}", why);
  }
  optimizers->learned = std::move(all);
}

}  // namespace lopt
