#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "lopt/estimators/diagnostics.h"
#include "lopt/estimators/full_es.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/estimators/truncated_es.h"
#include "tests/error_of.h"
#include "tests/pes_gradient.h"
#include "tests/toy_problem.h"

namespace lopt {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A trace of pairs with these losses, [steps][replicas], at these inner steps.
UnrollTrace Trace(const std::vector<std::vector<double>>& losses,
                  const std::vector<int64_t>& inner_steps) {
  UnrollTrace trace;
  trace.Resize(std::ssize(losses), std::ssize(losses[0]));
  trace.is_last.setConstant(false);
  trace.non_finite.setConstant(false);
  for (size_t k = 0; k < losses.size(); ++k) {
    for (size_t n = 0; n < losses[k].size(); ++n) {
      trace.loss(k, n) = losses[k][n];
      trace.iteration(k, n) = inner_steps[k];
    }
  }
  return trace;
}

Diagnostics LossMetrics(const UnrollTrace& trace) {
  LossDiagnostics diagnostics;
  diagnostics.Add(trace);
  Diagnostics metrics;
  diagnostics.WriteTo(&metrics);
  return metrics;
}

// A loss that is linear in theta, with a gradient of `dimension` ones.
std::shared_ptr<ToyProblem> LinearLoss(int64_t dimension, int64_t length) {
  return std::make_shared<ToyProblem>(ToyProblem::Dynamics{
      .theta_size = dimension,
      .start = {0},
      .length = length,
      .advance = [](std::span<const double> theta, std::span<double>, int64_t) {
        return std::accumulate(theta.begin(), theta.end(), 0.0);
      }});
}

TEST_CASE("Losses give their difference, their resolution and their mean by inner step") {
  const Diagnostics metrics = LossMetrics(Trace({{3, 1}, {8, 4}, {-7, -1}}, {8, 9, 10}));
  CHECK(metrics.at("loss_difference") == doctest::Approx(std::sqrt((4 + 16 + 36) / 3.0)));
  CHECK(metrics.at("loss_resolution") ==
        doctest::Approx(std::numeric_limits<float>::epsilon() * 4.0));
  CHECK(metrics.at({"loss_at", {0, 9}}) == 4);
  CHECK(metrics.at({"loss_at", {10, 19}}) == -4);
  CHECK(metrics.size() == 4);
}

TEST_CASE("The ranges of inner steps follow the series 1, 2, 5, also where an episode restarts") {
  const Diagnostics metrics = LossMetrics(Trace(
      {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}, {7, 7}}, {19, 20, 49, 99, 2000, 4999, 0}));
  CHECK(metrics.at({"loss_at", {0, 9}}) == 7);
  CHECK(metrics.at({"loss_at", {10, 19}}) == 1);
  CHECK(metrics.at({"loss_at", {20, 49}}) == 2.5);
  CHECK(metrics.at({"loss_at", {50, 99}}) == 4);
  CHECK(metrics.at({"loss_at", {2000, 4999}}) == 5.5);
  CHECK(metrics.size() == 7);
}

TEST_CASE("The name of a diagnostic's metric gives the diagnostic back") {
  for (const auto& [diagnostic, metric] :
       {std::pair<Diagnostic, std::string>{{"loss_at", {10, 19}}, "loss_at_10-19"},
        {"gradient_snr", "gradient_snr"},
        {{"x", {0, 0}}, "x_0-0"}}) {
    CHECK(MetricName(diagnostic) == metric);
    CHECK(DiagnosticOfMetric(metric) == diagnostic);
  }
  for (const char* metric : {"loss", "loss_at_", "loss_at_10", "loss_at_10-", "loss_at_10-19x"}) {
    CHECK(DiagnosticOfMetric(metric) == Diagnostic(metric));
  }
}

TEST_CASE("A pair with a loss that cannot be used is left out, and so is what has no value") {
  const Diagnostics metrics = LossMetrics(Trace({{3, kNaN, 1, 5}, {2, 9, 2, 3}}, {0, 30}));
  CHECK(metrics.at("loss_difference") == doctest::Approx(std::sqrt((4 + 0 + 36) / 3.0)));
  CHECK(metrics.at({"loss_at", {0, 9}}) == 2);
  CHECK(LossMetrics(Trace({{kNaN, 1}}, {0})).empty());
  const double huge = std::numeric_limits<double>::max();
  CHECK(LossMetrics(Trace({{huge, -huge}}, {0})) == Diagnostics{{{"loss_at", {0, 9}}, 0}});
}

TEST_CASE("What is noted comes out as the mean of its finite values, over pieces of a window") {
  UnrollTrace trace = Trace({{0, 0}, {0, 0}}, {0, 1});
  const auto nan = static_cast<float>(kNaN);
  Eigen::ArrayXXf values(2, 2);
  values << 1, 2, nan, 6;
  trace.noted = {{"task/b", values}, {"task/a", Eigen::ArrayXXf::Constant(2, 2, nan)}};
  NotedMeans means;
  means.Add(trace);
  Diagnostics metrics;
  means.WriteTo(&metrics);
  CHECK(metrics == Diagnostics{{"task/b", 3}});
  values << 7, 0, 0, 0;
  trace.noted[0].values = values;
  means.Add(trace);
  means.WriteTo(&metrics);
  CHECK(metrics == Diagnostics{{"task/b", 16 / 7.0}});
  NotedMeans none;
  none.Add(Trace({{0, 0}}, {0}));
  Diagnostics empty;
  none.WriteTo(&empty);
  CHECK(empty.empty());
}

TEST_CASE("A problem of one's own notes numbers, under names that no metric of an estimator has") {
  const auto estimate = [](const std::string& name) {
    const auto problem = std::make_shared<ToyProblem>(ToyProblem::Dynamics{
        .start = {0},
        .length = 4,
        .advance = [](auto, auto, int64_t step) { return static_cast<double>(step); },
        .noted = name});
    const TruncatedES estimator(problem, {{.num_tasks = 2, .trunc_length = 4, .std = 0.1}});
    const WorkerWeights weights{.theta = Eigen::VectorXf::Constant(1, 2), .outer = {}};
    EstimatorState state = estimator.InitWorkerState(weights, KeyFromSeed(1));
    return estimator.Estimate(weights, KeyFromSeed(2), &state);
  };
  CHECK(estimate("own/step").metrics.at("own/step") == 1.5);
  CHECK(ErrorOf([&] { estimate("loss_difference"); }) ==
        "inner problem: it notes 'loss_difference' [4, 4]; wanted a name GROUP/NAME, as no other "
        "metric of a window has, and [4, 4] values");
}

TEST_CASE("The norms of the accumulators are means over the pairs of an age") {
  const UnrollTrace trace = [] {
    UnrollTrace pairs = Trace({{0, 0, 0, 0, 0, 0}}, {0});
    pairs.iteration.row(0) << 60, 0, 99, 60, 0, 99;
    return pairs;
  }();
  const std::vector<double> norms = {5, 0, 7};
  Diagnostics metrics;
  WriteAccumulatorNorms(trace, norms, &metrics);
  CHECK(metrics ==
        Diagnostics{{{"accumulator_norm", {0, 9}}, 0}, {{"accumulator_norm", {50, 99}}, 6}});
}

TEST_CASE("The signal-to-noise ratio is that of the pairs' gradients written out") {
  // Two pairs with gradients (3, 1) and (1, -1): mean (2, 0), sample covariance of trace 2 + 2.
  Diagnostics metrics;
  WriteGradientSnr(Eigen::Vector2f(2, 0), 10 + 2, 2, &metrics);
  CHECK(metrics.at("gradient_snr") == doctest::Approx(4 / (4 / 2.0)));
  // One pair has no covariance, equal pairs no noise.
  Diagnostics none;
  WriteGradientSnr(Eigen::Vector2f(2, 0), 4, 1, &none);
  WriteGradientSnr(Eigen::Vector2f(2, 0), 8, 2, &none);
  CHECK(none.empty());
}

// For a linear loss with gradient c in D dimensions pair n gives (c . e) e with a standard normal
// e: mean c, covariance of trace (D + 1) |c|^2. So the ratio is near 1 + N / (D + 1).
TEST_CASE("The signal-to-noise ratio of a linear loss is the one of theory in every estimator") {
  constexpr int64_t kDimension = 9;
  constexpr int64_t kPairs = 20000;
  const WorkerWeights weights{.theta = Eigen::VectorXf::Ones(kDimension), .outer = {}};
  const double expected = 1 + kPairs / (kDimension + 1.0);
  const TruncatedOptions options{.num_tasks = kPairs, .trunc_length = 3, .std = 0.1};
  const auto snr = [&](const GradientEstimator& estimator) {
    EstimatorState state = estimator.InitWorkerState(weights, KeyFromSeed(1));
    return estimator.Estimate(weights, KeyFromSeed(2), &state).metrics.at("gradient_snr");
  };
  // Sums over pairs: |mean|^2 and the trace deviate by 2.5 % and 1 % (one standard error).
  CHECK(snr(TruncatedPES(LinearLoss(kDimension, 0), options)) ==
        doctest::Approx(expected).epsilon(0.1));
  CHECK(snr(TruncatedES(LinearLoss(kDimension, 0), {options})) ==
        doctest::Approx(expected).epsilon(0.1));
  CHECK(snr(FullES(LinearLoss(kDimension, 0),
                   std::make_shared<ConstantTruncationSchedule>(
                       ConstantTruncationSchedule::Options{.total_length = 3}),
                   {.num_tasks = kPairs, .std = 0.1})) == doctest::Approx(expected).epsilon(0.1));
}

TEST_CASE("The squared norms of the pairs' PES gradients are those that each pair gives alone") {
  UnrollTrace trace = Trace({{1, 5, 0, 2}, {2, 6, -1, 3}, {4, 1, 0, 0}}, {5, 0, 1});
  trace.is_last.row(0) << true, false, true, false;
  const std::vector<float> eps = {0.5F, -1.0F, 0.25F, 2.0F};
  const std::vector<float> accumulator_before = {3.0F, 1.0F, -2.0F, 0.5F};
  std::vector<float> accumulator = accumulator_before;
  double squares = 0;
  PesGradient(trace, eps, 0.7, accumulator, &squares);

  double expected = 0;
  for (int64_t n = 0; n < 2; ++n) {
    UnrollTrace alone = Trace({{0, 0}, {0, 0}, {0, 0}}, {5, 0, 1});
    alone.loss << trace.loss.col(n), trace.loss.col(n + 2);
    alone.is_last << trace.is_last.col(n), trace.is_last.col(n + 2);
    accumulator = {accumulator_before[2 * n], accumulator_before[2 * n + 1]};
    expected += PesGradient(alone, std::span(eps).subspan(2 * n, 2), 0.7, accumulator)
                    .cast<double>()
                    .squaredNorm();
  }
  CHECK(squares == doctest::Approx(expected));
}

TEST_CASE("PES tells the norms of the accumulators before the window") {
  const TruncatedPES estimator(LinearLoss(5, 12), {.num_tasks = 3, .trunc_length = 4, .std = 0.1});
  const WorkerWeights weights{.theta = Eigen::VectorXf::Ones(5), .outer = {}};
  EstimatorState state = estimator.InitWorkerState(weights, KeyFromSeed(1));
  for (uint64_t window = 0; window < 4; ++window) {
    CAPTURE(window);
    const std::vector<float> accumulator(state.At("felt").As<float>().begin(),
                                         state.At("felt").As<float>().end());
    const Diagnostics metrics =
        estimator.Estimate(weights, KeyFromSeed(10 + window), &state).metrics;
    double expected = 0;
    for (int64_t n = 0; n < 3; ++n) {
      expected +=
          std::sqrt(std::inner_product(accumulator.begin() + 5 * n, accumulator.begin() + 5 * n + 5,
                                       accumulator.begin() + 5 * n, 0.0)) /
          3;
    }
    CHECK((expected > 0) == (window % 3 > 0));
    CHECK(metrics.at({"accumulator_norm", {0, 9}}) == doctest::Approx(expected));
    CHECK(metrics.at("loss_difference") > 0);
    CHECK(metrics.contains({"loss_at", {10, 19}}) == (window % 3 == 2));
  }
}

}  // namespace
}  // namespace lopt
