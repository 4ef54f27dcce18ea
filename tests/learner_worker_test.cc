#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/parallel.h"
#include "lopt/estimators/full_es.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/learner/worker.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "tests/error_of.h"
#include "tests/learner_fakes.h"

namespace lopt {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const Key kKey = WorkerKey(KeyFromSeed(7), 0);

WorkerWeights Weights(int64_t outer_step = 0) {
  return {.theta = Eigen::VectorXf::Zero(1), .outer = {.outer_step = outer_step}};
}

AggregatedGradient Compute(const Estimators& estimators, int64_t windows = 1) {
  WorkerState state = InitWorkerState(Weights(), estimators, kKey);
  return GradientWorkerCompute(Weights(), estimators, windows, kKey, &state);
}

TEST_CASE("A worker's gradient is the mean of its estimators' gradients") {
  const AggregatedGradient to_put = Compute({Always(0, 3), Always(1, 5)});
  CHECK(to_put.gradient[0] == 0.5F);
  CHECK(to_put.mean_loss == 4);
  CHECK(to_put.counts == StepCounts{.inner_steps = 20, .non_finite = 0, .episodes_ended = 2});
  CHECK(to_put.estimators[1].mean_loss == 5);
  CHECK(to_put.estimators[1].gradient_norm == 1);
  CHECK(to_put.estimators[1].metrics == Diagnostics{{"double_loss", 10}});
}

TEST_CASE("Estimators count by their weights") {
  const AggregatedGradient to_put = Compute({Always(2, 1, 3), Always(-2, 9, 1)});
  CHECK(to_put.gradient[0] == 1);
  CHECK(to_put.mean_loss == 3);
}

TEST_CASE("A gradient that is not finite is passed on, a loss that is not a number is left out") {
  const AggregatedGradient to_put = Compute({Always(kNan, kNan), Always(1, 5)});
  CHECK(std::isnan(to_put.gradient[0]));
  CHECK(to_put.mean_loss == 5);
  CHECK(std::isnan(to_put.estimators[0].mean_loss));
  CHECK(std::isnan(Compute({Always(1, kNan)}).mean_loss));
  CHECK(std::isinf(
      Compute({Always(std::numeric_limits<float>::infinity(), 0), Always(1, 0)}).gradient[0]));
}

TEST_CASE("Several windows run under the same theta and give their mean") {
  const Estimators estimators = {Configured([](const WorkerWeights&, Key, int64_t window) {
    return GradientEstimate{.gradient = Eigen::VectorXf::Constant(1, static_cast<float>(window)),
                            .mean_loss = window == 1 ? kNan : static_cast<double>(window),
                            .counts = {.inner_steps = 5, .non_finite = 0, .episodes_ended = 0},
                            .metrics = {{"window", static_cast<double>(window)}}};
  })};
  const AggregatedGradient to_put = Compute(estimators, 4);
  CHECK(to_put.gradient[0] == 1.5F);
  CHECK(to_put.mean_loss == doctest::Approx(5.0 / 3));
  CHECK(to_put.counts.inner_steps == 20);
  CHECK(to_put.estimators[0].metrics.at("window") == 1.5);
}

TEST_CASE("Keys are derived as documented and never repeat") {
  CHECK(WorkerKey(KeyFromSeed(7), 3) == FoldIn(KeyFromSeed(7), 3));
  CHECK(ThetaKey(KeyFromSeed(7)) == FoldIn(KeyFromSeed(7), uint64_t{1} << 32));
  std::mutex mutex;
  std::vector<Key> drawn;
  const auto note = [&](const WorkerWeights&, Key key, int64_t) {
    const std::lock_guard lock(mutex);
    drawn.push_back(key);
    return GradientEstimate{
        .gradient = Eigen::VectorXf::Zero(1), .mean_loss = 0, .counts = {}, .metrics = {}};
  };
  const Estimators estimators = {Configured(note), Configured(note)};
  std::set<Key> all;
  for (const int64_t worker : {0, 1}) {
    const Key key = WorkerKey(KeyFromSeed(7), worker);
    drawn.clear();
    WorkerState state = InitWorkerState(Weights(), estimators, key);
    for (size_t e = 0; e < 2; ++e) {
      const auto words = state.estimators[e].At("start_key").As<uint32_t>();
      const Key start{.hi = words[0], .lo = words[1]};
      CHECK(start == FoldIn(FoldIn(key, 0), e));
      all.insert(start);
    }
    for (int64_t update = 0; update < 3; ++update) {
      GradientWorkerCompute(Weights(update), estimators, 2, key, &state);
    }
    CHECK(state.windows == 6);
    // One after the other outside of a pool: both windows of estimator 0, then of 1.
    REQUIRE(drawn.size() == 12);
    for (size_t i = 0; i < 12; ++i) {
      const size_t window = 2 * (i / 4) + i % 2;
      CHECK(drawn[i] == FoldIn(FoldIn(FoldIn(key, 1), window), i / 2 % 2));
    }
    all.insert(drawn.begin(), drawn.end());
  }
  CHECK(all.size() == 2 * (2 + 12));
}

// Gradients whose float64 sum depends on its order.
Estimators Delicate() {
  Estimators estimators;
  for (int e = 0; e < 7; ++e) {
    estimators.push_back(Configured(
        [e](const WorkerWeights& weights, Key key, int64_t) {
          const float value = (Uniform(key) - 0.5F) * std::pow(10.0F, static_cast<float>(3 * e));
          return GradientEstimate{.gradient = weights.theta.array() + value,
                                  .mean_loss = value,
                                  .counts = {},
                                  .metrics = {}};
        },
        1 + e));
  }
  return estimators;
}

TEST_CASE("Any number of threads gives the same bits, for several workers") {
  const Estimators estimators = Delicate();
  const auto compute = [&](int threads) {
    std::vector<AggregatedGradient> gradients;
    ThreadPool pool(threads);
    pool.Run([&] {
      std::vector<Key> keys;
      std::vector<WorkerState> states;
      for (int64_t w = 0; w < 5; ++w) {
        keys.push_back(WorkerKey(KeyFromSeed(1), w));
        states.push_back(InitWorkerState(Weights(), estimators, keys.back()));
      }
      gradients = ComputeWorkers(Weights(), estimators, 3, keys, states);
    });
    return gradients;
  };
  const auto one = compute(1);
  for (const int threads : {2, 8}) {
    const auto many = compute(threads);
    for (size_t w = 0; w < one.size(); ++w) {
      CHECK(many[w].gradient == one[w].gradient);
      CHECK(many[w].mean_loss == one[w].mean_loss);
    }
  }
  CHECK(one[0].gradient != one[1].gradient);
}

TEST_CASE("A worker names its estimators by index and task") {
  CHECK(EstimatorName({Always(0, 0), Always(0, 0)}, 1) == "1_Fake");
}

TEST_CASE("Impossible workers are errors") {
  CHECK_THROWS_WITH_AS(InitWorkerState(Weights(), {}, kKey),
                       "a worker needs at least one estimator", Error);
  CHECK_THROWS_WITH_AS(InitWorkerState(Weights(), {Always(1, 1, -1)}, kKey),
                       "estimator 0_Fake has weight -1; a weight is a number >= 0", Error);
  CHECK_THROWS_WITH_AS(InitWorkerState(Weights(), {Always(1, 1, 0)}, kKey),
                       "all estimators have weight 0", Error);
  const WorkerWeights two = {.theta = Eigen::VectorXf::Zero(2), .outer = {}};
  CHECK_THROWS_WITH_AS(InitWorkerState(two, {Always(1, 1)}, kKey),
                       "estimator 0_Fake is for a theta of 1 numbers, got 2", Error);
  CHECK_THROWS_WITH_AS(Compute({Always(1, 1)}, 0),
                       "a worker must run at least one window per update, got 0", Error);
  WorkerState empty;
  CHECK_THROWS_WITH_AS(GradientWorkerCompute(Weights(), {Always(1, 1)}, 1, kKey, &empty),
                       "the worker's state is of 0 estimators, there are 1", Error);
}

// Episodes of bowls that last one step more in each outer step.
std::shared_ptr<const FullES> Bowls(int64_t dim) {
  return std::make_shared<FullES>(
      std::make_shared<LoptProblem>(
          std::make_shared<FixedDimQuadraticFamily>(QuadraticOptions{.dim = dim}),
          std::make_shared<LearnableSGD>(), std::make_shared<NeverEndingTruncationSchedule>(),
          LoptProblemOptions()),
      std::make_shared<ScheduledTruncationSchedule>(
          ScheduledTruncationSchedule::Options{.outer_steps = {0, 100}, .lengths = {10, 110}}),
      FullES::Options());
}

std::shared_ptr<const ConfiguredEstimator> With(std::shared_ptr<const GradientEstimator> estimator,
                                                double weight) {
  return std::make_shared<ConfiguredEstimator>(
      ConfiguredEstimator{.estimator = std::move(estimator), .weight = weight, .task = "Bowls"});
}

TEST_CASE("Meta-losses are the weighted mean over the estimators, under the draws of a window") {
  const std::vector<Eigen::VectorXf> thetas = {Eigen::VectorXf::Constant(1, -4),
                                               Eigen::VectorXf::Constant(1, -3)};
  const auto first = Bowls(2);
  const auto third = Bowls(5);
  const Estimators estimators = {With(first, 1), nullptr, With(third, 3), Always(0, 0, 0)};
  const int64_t step = 7;
  const Key window = FoldIn(FoldIn(kKey, 1), step);
  const auto of_first = first->MetaLosses(thetas, {.outer_step = step}, FoldIn(window, 0));
  const auto of_third = third->MetaLosses(thetas, {.outer_step = step}, FoldIn(window, 2));
  CHECK(of_first != first->MetaLosses(thetas, {}, FoldIn(window, 0)));
  ThreadPool(2).Run([&] {
    const std::vector<double> losses = MetaLosses(thetas, estimators, kKey, step);
    REQUIRE(losses.size() == 2);
    for (size_t k = 0; k < 2; ++k) {
      CHECK(losses[k] == doctest::Approx((of_first[k] + 3 * of_third[k]) / 4).epsilon(1e-12));
    }
    CHECK(losses != MetaLosses(thetas, estimators, kKey, step + 1));
  });
  const Eigen::VectorXf diverges = Eigen::VectorXf::Constant(1, 60);
  CHECK(std::isinf(MetaLosses({&diverges, 1}, estimators, kKey, step).at(0)));
}

TEST_CASE("Meta-losses of no theta, of another size or of truncated estimators are errors") {
  const std::vector<Eigen::VectorXf> thetas(2, Eigen::VectorXf::Zero(1));
  const std::vector<Eigen::VectorXf> large(2, Eigen::VectorXf::Zero(3));
  const Estimators estimators = {With(Bowls(2), 1)};
  const auto error_of = [](const auto&... arguments) {
    return ErrorOf([&] { MetaLosses(arguments...); });
  };
  CHECK(error_of(std::span(thetas).first(0), estimators, kKey, 0) ==
        "meta-losses: no thetas, wanted at least one");
  CHECK(error_of(thetas, estimators, kKey, -1) == "meta-losses: step is -1, wanted at least 0");
  CHECK(error_of(thetas, Estimators(), kKey, 0) == "a worker needs at least one estimator");
  CHECK(error_of(large, estimators, kKey, 0) ==
        "estimator 0_Bowls is for a theta of 1 numbers, got 3");
  CHECK(error_of(thetas, Estimators{With(Bowls(2), 1), Always(0, 0)}, kKey, 0) ==
        "meta-losses: estimator 1_Fake is not of type FullES, which runs whole episodes");
}

}  // namespace
}  // namespace lopt
