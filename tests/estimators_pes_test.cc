#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/estimators/truncated_es.h"
#include "pes_gradient.h"
#include "toy_problem.h"

namespace lopt {
namespace {

// A trace of pairs: the losses of the first positive replica are the differences, all others 0.
UnrollTrace PairTrace(const std::vector<double>& differences, const std::vector<int64_t>& ends,
                      int64_t pairs = 1) {
  UnrollTrace trace;
  const auto steps = std::ssize(differences);
  trace.Resize(steps, 2 * pairs);
  trace.loss.setZero();
  trace.is_last.setConstant(false);
  trace.non_finite.setConstant(false);
  trace.iteration.setZero();
  for (int64_t k = 0; k < steps; ++k) {
    trace.loss(k, 0) = differences[k];
  }
  for (const int64_t end : ends) {
    trace.is_last.row(end).setConstant(true);
  }
  return trace;
}

// With std^2 = 1/2, one pair and one weight the gradient is the weighted sum over the window's
// length.
const double kStd = std::sqrt(0.5);

double Gradient(const UnrollTrace& trace, float eps, float* accumulator) {
  return PesGradient(trace, {&eps, 1}, kStd, {accumulator, 1})(0);
}

TEST_CASE("Without an episode end every loss is weighted by the whole carried sum") {
  float accumulator = 2;
  CHECK(Gradient(PairTrace({1, 2, 3}, {}), 0.5F, &accumulator) == doctest::Approx(2.5 * 6 / 3));
  CHECK(accumulator == 2.5F);
}

TEST_CASE(
    "The last loss of an episode is weighted by its earlier perturbations, the next one is not") {
  float accumulator = 2;
  CHECK(Gradient(PairTrace({1, 2, 4}, {1}), 0.5F, &accumulator) ==
        doctest::Approx((2.5 * 3 + 0.5 * 4) / 3));
  CHECK(accumulator == 0.5F);
}

TEST_CASE("After a second end in the window its own perturbation alone weighs the losses") {
  float accumulator = 2;
  CHECK(Gradient(PairTrace({1, 2, 4, 8}, {0, 2}), 0.5F, &accumulator) ==
        doctest::Approx((2.5 * 1 + 0.5 * 14) / 4));
  CHECK(accumulator == 0.5F);
}

TEST_CASE("Nothing is carried on when the last step of the window ends an episode") {
  float accumulator = 2;
  CHECK(Gradient(PairTrace({1, 2}, {1}), 0.5F, &accumulator) == doctest::Approx(2.5 * 3 / 2));
  CHECK(accumulator == 0);
  CHECK(Gradient(PairTrace({1, 2}, {0, 1}), 0.5F, &accumulator) == doctest::Approx(0.5 * 3 / 2));
  CHECK(accumulator == 0);
}

TEST_CASE("A loss that cannot be used counts as no difference and the window keeps its length") {
  float accumulator = 0;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(Gradient(PairTrace({3, nan, 3}, {}), 1, &accumulator) == doctest::Approx(2));
  UnrollTrace trace = PairTrace({3, 5, 3}, {});
  trace.loss(1, 1) = std::numeric_limits<double>::infinity();
  accumulator = 0;
  CHECK(Gradient(trace, 1, &accumulator) == doctest::Approx(2));
}

TEST_CASE("With a sign scalar all steps have the sign of the window's mean difference") {
  // The mean of 1, 2 and -4 is negative; one loss belongs to the new episode.
  const UnrollTrace trace = PairTrace({1, 2, -4}, {1});
  const auto gradient = [&](std::optional<double> scalar) {
    const float eps = 0.5F;
    float accumulator = 2;
    double squares = 0;
    const double value =
        PesGradient(trace, {&eps, 1}, kStd, {&accumulator, 1}, &squares, scalar)(0);
    CHECK(accumulator == 0.5F);
    CHECK(squares == doctest::Approx(value * value));
    return value;
  };
  CHECK(gradient(3) == doctest::Approx(-3 * (2.5 * 2 + 0.5) / 3));
  CHECK(gradient({}) == doctest::Approx((2.5 * 3 - 0.5 * 4) / 3));
}

// The first gradient for losses of `scale` times theta.
template <class Estimator>
Eigen::VectorXf FirstGradient(double scale, std::optional<double> scalar) {
  const auto problem = std::make_shared<ToyProblem>(ToyProblem::Dynamics{
      .theta_size = 3,
      .start = {0.0},
      .advance = [scale](std::span<const double> theta, std::span<double>, int64_t) {
        return scale * (theta[0] - 2 * theta[1] + theta[2]);
      }});
  const TruncatedOptions options = {
      .num_tasks = 4, .trunc_length = 3, .sign_delta_loss_scalar = scalar};
  const Estimator estimator(problem, {options});
  const WorkerWeights weights{.theta = Eigen::VectorXf::Zero(3), .outer = {}};
  EstimatorState state = estimator.InitWorkerState(weights, KeyFromSeed(1));
  return estimator.Estimate(weights, KeyFromSeed(2), &state).gradient;
}

TEST_CASE("With a sign scalar gradients do not depend on the size of the losses, only on it") {
  const auto check = []<class Estimator>() {
    const Eigen::VectorXf one = FirstGradient<Estimator>(1, 1);
    CHECK(FirstGradient<Estimator>(1000, 1) == one);
    CHECK(FirstGradient<Estimator>(1000, 2) == 2 * one);
    CHECK(FirstGradient<Estimator>(-1000, 1) == -one);
    CHECK(FirstGradient<Estimator>(1000, {}) != one);
  };
  check.operator()<TruncatedPES>();
  check.operator()<TruncatedES>();
}

TEST_CASE("One pair without usable losses leaves the other pairs as they are") {
  UnrollTrace trace;
  trace.Resize(2, 4);
  trace.loss << 1, 5, 0, 0, 2, 6, 0, 0;
  trace.is_last.setConstant(false);
  const std::vector<float> eps = {0.25F, 0.5F};
  std::vector<float> accumulator = {0, 0};
  trace.loss.col(1).setConstant(std::numeric_limits<double>::quiet_NaN());
  const double with_nan = PesGradient(trace, eps, 1, accumulator)(0);
  trace.loss.col(1).setZero();
  accumulator = {0, 0};
  CHECK(with_nan == PesGradient(trace, eps, 1, accumulator)(0));
  CHECK(std::isfinite(with_nan));
}

TEST_CASE("Swapping the replicas and the sign of the perturbations changes no bit") {
  UnrollTrace trace;
  trace.Resize(2, 4);
  trace.loss << 1.5, 5.25, 0.125, 3, 2, 6, 7, 0.1;
  trace.is_last.setConstant(false);
  trace.is_last.row(0).setConstant(true);
  std::vector<float> eps = {0.25F, 0.5F, -1.0F, 0.3F};
  std::vector<float> accumulator = {1, 2, 3, 4};
  const Eigen::VectorXf gradient = PesGradient(trace, eps, 0.1, accumulator);
  UnrollTrace swapped = trace;
  swapped.loss.leftCols(2) = trace.loss.rightCols(2);
  swapped.loss.rightCols(2) = trace.loss.leftCols(2);
  for (float& value : eps) {
    value = -value;
  }
  std::vector<float> negative = {-1, -2, -3, -4};
  CHECK(PesGradient(swapped, eps, 0.1, negative) == gradient);
}

TEST_CASE("PES refuses arrays that do not fit each other") {
  const UnrollTrace trace = PairTrace({1}, {});
  std::vector<float> one = {0};
  CHECK_THROWS_WITH_AS(PesGradient(trace, one, 0, one),
                       "persistent gradient: std must be above 0, got 0", Error);
  UnrollTrace odd;
  odd.Resize(4, 3);
  CHECK_THROWS_WITH_AS(
      PesGradient(odd, one, 1, one),
      "persistent gradient: a trace of 4 steps of 3 replicas, wanted antithetic pairs", Error);
  CHECK_THROWS_WITH_AS(PesGradient(PairTrace({1, 2, 3, 4}, {}, 2), one, 1, one),
                       "persistent gradient: accumulators of 1 numbers for 2 pairs", Error);
}

}  // namespace
}  // namespace lopt
