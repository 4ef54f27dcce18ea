#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "count_allocations.h"
#include "lopt/base/eigen.h"
#include "lopt/evaluation/evaluate.h"
#include "lopt/lopt/rules/learnable.h"

namespace lopt {
namespace {

constexpr int64_t kDim = 100'000;
constexpr int64_t kBytesOfParams = kDim * 4;

// Of two tasks with many params.
EvaluationConfig Large(int64_t seeds) {
  EvaluationConfig config;
  config.steps = {2};
  config.seeds = seeds;
  config.trials = 2;
  config.tuning_seeds = seeds;
  for (const char* name : {"first", "second"}) {
    config.tasks.push_back(
        {.name = name,
         .task = Config::Parse(R"({"type": "FixedDimQuadraticFamily", "dim": 100000})", "test")});
  }
  return config;
}

EvaluatedOptimizers PlainAndTunedSgd() {
  const auto sgd = std::make_shared<LearnableSGD>(LearnableSGDOptions{});
  EvaluatedOptimizers optimizers;
  optimizers.learned.push_back({"mine", sgd, sgd->InitTheta(Key{})});
  AddTunedSteps(&optimizers);
  return optimizers;
}

TEST_CASE("An evaluation keeps no params of trainings that have ended") {
  const auto most_bytes = [](int64_t seeds) {
    Evaluation evaluation(Large(seeds), PlainAndTunedSgd());
    const int64_t before = allocated_bytes;
    int64_t most = 0;
    evaluation.Run({.on_progress = [&](const EvaluationProgress&) {
      most = std::max<int64_t>(most, allocated_bytes - before);
    }});
    return most;
  };
  const int64_t of_two = most_bytes(2);
  CHECK(of_two > kBytesOfParams);  // those of the training that ends
  CHECK(most_bytes(12) < of_two + kBytesOfParams);
}

TEST_CASE("A task that has ended keeps no scratch memory") {
  Evaluation evaluation(Large(2), PlainAndTunedSgd());
  const int64_t before = allocated_bytes;
  std::vector<int64_t> kept;
  evaluation.Run({.on_task = [&](const std::vector<RunResult>&) {
    kept.push_back(allocated_bytes - before);
  }});
  REQUIRE(kept.size() == 2);
  for (const int64_t bytes : kept) CHECK(bytes < kBytesOfParams);
}

}  // namespace
}  // namespace lopt
