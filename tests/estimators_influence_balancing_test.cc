// Influence balancing (Tallec and Ollivier 2017): a linear system where the short-term gradient
// points the wrong way.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "lopt/estimators/persistent_es.h"
#include "lopt/estimators/truncated_es.h"
#include "toy_problem.h"

namespace lopt {
namespace {

constexpr int kSize = 23;
constexpr int kPositive = 10;

// s <- A s + theta v with 1/2 on the diagonal and superdiagonal of A; the loss is (s_1 - 1)^2 / 2.
double Advance(double theta, std::span<double> s) {
  for (int i = 0; i < kSize; ++i) {
    s[i] = 0.5 * s[i] + (i + 1 < kSize ? 0.5 * s[i + 1] : 0.0) + (i < kPositive ? theta : -theta);
  }
  return 0.5 * (s[0] - 1) * (s[0] - 1);
}

double LossAfter(double theta, int steps) {
  std::vector<double> s(kSize, 1.0);
  double loss = 0;
  for (int t = 0; t < steps; ++t) {
    loss = Advance(theta, s);
  }
  return loss;
}

std::shared_ptr<ToyProblem> Problem() {
  return std::make_shared<ToyProblem>(
      ToyProblem::Dynamics{.theta_size = 1,
                           .start = std::vector<double>(kSize, 1.0),
                           .length = 0,
                           .advance = [](std::span<const double> theta, std::span<double> s,
                                         int64_t) { return Advance(theta[0], s); }});
}

// Theta after 3,000 windows of one step with plain SGD from 0.5.
double Train(const GradientEstimator& estimator) {
  WorkerWeights weights{.theta = Eigen::VectorXf::Constant(1, 0.5F), .outer = {}};
  EstimatorState state = estimator.InitWorkerState(weights, KeyFromSeed(1));
  for (uint64_t step = 0; step < 3000; ++step) {
    weights.theta -=
        1e-4F * estimator.Estimate(weights, FoldIn(KeyFromSeed(2), step), &state).gradient;
  }
  return weights.theta(0);
}

constexpr TruncatedOptions kOptions = {.num_tasks = 500, .trunc_length = 1, .std = 0.1};

TEST_CASE("The system has its listed loss, gradient and influence coefficients") {
  // s_1(T) is linear in theta, so differences are exact.
  const auto state = [](double theta, int steps) {
    std::vector<double> s(kSize, 1.0);
    for (int t = 0; t < steps; ++t) {
      Advance(theta, s);
    }
    return s[0];
  };
  const auto coefficient = [&](int steps) { return state(1, steps) - state(0, steps); };
  CHECK(std::abs(LossAfter(0.5, 500) - 8.0) < 1e-9);
  CHECK(std::abs((state(0.5, 500) - 1) * coefficient(500) - 24.0) < 1e-9);
  CHECK(std::abs(coefficient(1) - 1) < 1e-9);
  CHECK(std::abs(coefficient(10) - 10) < 1e-9);
  CHECK(std::abs(coefficient(19) - 16.476058959960938) < 1e-9);
  CHECK(std::abs(coefficient(20) - 16.476058959960938) < 1e-9);
  CHECK(std::abs(coefficient(50) - -4.75267059393876) < 1e-9);
  CHECK(std::abs(coefficient(100) - -5.99999997829336) < 1e-9);
}

TEST_CASE("PES and NRES find the optimum of influence balancing") {
  for (const double theta :
       {Train(TruncatedPES(Problem(), kOptions)), Train(TruncatedNRES(Problem(), kOptions))}) {
    CHECK(std::abs(theta - -1.0 / 6) < 1e-3);
    CHECK(LossAfter(theta, 500) < 1e-10);
  }
}

TEST_CASE("Truncated ES goes the wrong way on influence balancing") {
  for (const auto carried : {TruncatedES::Carried::kPositive, TruncatedES::Carried::kMean}) {
    const double theta = Train(TruncatedES(Problem(), {kOptions, carried}));
    CHECK(theta > 2);
    CHECK(std::abs(theta - 3.255) < 0.1);
  }
}

}  // namespace
}  // namespace lopt
