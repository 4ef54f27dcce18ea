// Meta-training on the kernels is meta-training on the references, to rounding.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/parallel.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/tasks/registry.h"
#include "tests/reference/image_mlp_reference.h"
#include "tests/reference/mlp_lopt_reference.h"

namespace lopt {
namespace {

template <class Optimizer, class Images>
std::vector<double> MetaLosses(int updates) {
  const auto optimizer = std::make_shared<Optimizer>(MLPLOptOptions{});
  const auto schedule = std::make_shared<LogUniformLengthSchedule>(
      LogUniformLengthSchedule::Options{.min_length = 20, .max_length = 60});
  const auto images = GetImages({}, TaskResources(""));
  const std::vector<std::shared_ptr<const TaskFamily>> tasks = {
      std::make_shared<FixedDimQuadraticFamily>(QuadraticOptions{}),
      std::make_shared<Images>(ImageMlpOptions{.images = {.batch_size = 64}}, images)};
  Estimators estimators;
  for (const auto& task : tasks) {
    auto problem = std::make_shared<LoptProblem>(
        task, optimizer, schedule, LoptProblemOptions{.random_initial_iteration_offset = 60});
    estimators.push_back(std::make_shared<ConfiguredEstimator>(ConfiguredEstimator{
        .estimator = std::make_shared<TruncatedPES>(
            std::move(problem), TruncatedOptions{.num_tasks = 2, .trunc_length = 20, .std = 0.01}),
        .weight = 1,
        .task = "task"}));
  }
  const SingleMachineGradientLearner learner(
      GradientLearner(optimizer, Config::Parse(R"({"type": "Adam"})", "test")), estimators, {});
  const Key run_key = KeyFromSeed(1);
  auto state = learner.Init(run_key);
  std::vector<double> losses;
  ThreadPool pool(2);
  pool.Run([&] {
    for (int update = 0; update < updates; ++update) {
      losses.push_back(learner.Update(run_key, &state).mean_loss);
    }
  });
  return losses;
}

TEST_CASE("The meta-loss curve of the kernels is that of the references, to rounding") {
  constexpr int kUpdates = 20;
  const auto fast = MetaLosses<MLPLOpt, ImageMlp>(kUpdates);
  const auto plain = MetaLosses<ReferenceMLPLOpt, ReferenceImageMlp>(kUpdates);
  for (int update = 0; update < kUpdates; ++update) {
    CAPTURE(update);
    CHECK(std::abs(fast[update] - plain[update]) <= 1e-4 * plain[update]);
  }
  CHECK(fast != plain);
}

}  // namespace
}  // namespace lopt
