#include <doctest/doctest.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/parallel.h"
#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/full_es.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/estimators/theta_rows.h"
#include "lopt/estimators/truncated_es.h"
#include "toy_problem.h"

namespace lopt {
namespace {

using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Rows RowsOf(const Perturbations& of) {
  const auto rows = of.Rows();
  return Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
             rows.data(), of.pairs(), of.dimension())
      .cast<double>();
}

TEST_CASE(
    "Orthogonal perturbations are orthogonal in blocks of D, and as long as independent ones") {
  constexpr int64_t kD = 7;
  const std::vector<Key> keys = SplitKey(KeyFromSeed(3), 17);
  const Rows rows = RowsOf(Perturbations(keys, .1, kD, Directions::kOrthogonal));
  const Rows drawn = RowsOf(Perturbations(keys, .1, kD));
  for (int64_t i = 0; i < rows.rows(); ++i) {
    CHECK(rows.row(i).norm() == doctest::Approx(drawn.row(i).norm()).epsilon(1e-6));
    for (int64_t j = i / kD * kD; j < i; ++j) {
      const double cosine = rows.row(i).dot(rows.row(j)) / rows.row(i).norm() / rows.row(j).norm();
      CHECK(std::abs(cosine) < 1e-6);  // of float32 numbers
    }
  }
  // The first of a block is as it was drawn, and another block is not orthogonal to the first.
  CHECK((rows.row(7) - drawn.row(7)).norm() < 1e-7);
  CHECK(std::abs(rows.row(7).dot(rows.row(0))) > 1e-6);
}

TEST_CASE("They do not depend on threads, nor on which pair is asked for first") {
  const std::vector<Key> keys = SplitKey(KeyFromSeed(4), 12);
  const Perturbations one(keys, .1, 20, Directions::kOrthogonal);
  const Perturbations other(keys, .1, 20, Directions::kOrthogonal);
  const std::vector<float> last(other.Row(11).begin(), other.Row(11).end());
  ThreadPool(3).Run([&] { CHECK(RowsOf(one) == RowsOf(other)); });
  CHECK(std::ranges::equal(one.Row(11), last));
}

// Mean and variance, by count, of the gradient of the loss g . theta for a g of length 1.
struct Moments {
  double mean = 0;      // of the gradient along g
  double variance = 0;  // the mean squared distance of the gradient from g
};

Moments OfLinearLoss(int64_t pairs, int64_t dimension, Directions directions) {
  constexpr int64_t kDraws = 20000;
  constexpr double kStd = .1;
  Eigen::VectorXd g = Eigen::VectorXd::LinSpaced(dimension, 1, 2).normalized();
  Moments moments;
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    const Perturbations of(SplitKey(FoldIn(KeyFromSeed(5), static_cast<uint64_t>(draw)), pairs),
                           kStd, dimension, directions);
    const Eigen::VectorXd differences = 2 * RowsOf(of) * g;
    const std::vector<double> weights(differences.begin(), differences.end());
    const Eigen::VectorXd gradient = WeightedPerturbations(weights, of.Rows(), kStd);
    moments.mean += gradient.dot(g) / kDraws;
    moments.variance += (gradient - g).squaredNorm() / kDraws;
  }
  return moments;
}

TEST_CASE("The gradient of a linear loss is without bias and has the variance that was counted") {
  // With D = 6 the variance of N pairs is (D + 1) / N, and of orthogonal ones (D + 2 - N) / N. The
  // standard deviation of what is averaged is about 2 at one pair: 20,000 draws leave .015.
  for (const int64_t pairs : {1, 3, 6}) {
    CAPTURE(pairs);
    const auto n = static_cast<double>(pairs);
    const Moments independent = OfLinearLoss(pairs, 6, Directions::kIndependent);
    CHECK(independent.mean == doctest::Approx(1).epsilon(.03));
    CHECK(independent.variance == doctest::Approx(7 / n).epsilon(.05));
    const Moments orthogonal = OfLinearLoss(pairs, 6, Directions::kOrthogonal);
    CHECK(orthogonal.mean == doctest::Approx(1).epsilon(.03));
    CHECK(orthogonal.variance == doctest::Approx((8 - n) / n).epsilon(.05));
  }
}

// The gradient of one step of each task under the loss 1 theta_0 + 2 theta_1 + ..., which is that
// of the perturbations by hand.
void CheckUses(const GradientEstimator& estimator, int64_t pairs, Directions directions) {
  constexpr int64_t kD = 5;
  const WorkerWeights weights{.theta = Eigen::VectorXf::LinSpaced(kD, -1, 1), .outer = {}};
  const Key key = KeyFromSeed(8);
  EstimatorState state = estimator.InitWorkerState(weights, KeyFromSeed(9));
  const GradientEstimate estimate = estimator.Estimate(weights, key, &state);
  const Perturbations of(SplitKey(FoldIn(key, kPerturbationDraw), pairs), .1, kD, directions);
  std::vector<double> differences(static_cast<size_t>(pairs));
  for (int64_t n = 0; n < pairs; ++n) {
    for (int64_t i = 0; i < kD; ++i) {
      differences[n] += 2 * static_cast<double>(i + 1) * double{of.Row(n)[i]};
    }
  }
  const Eigen::VectorXd wanted = WeightedPerturbations(differences, of.Rows(), .1);
  // theta plus a perturbation is rounded to float32.
  CHECK((estimate.gradient.cast<double>() - wanted).norm() < 1e-5 * wanted.norm());
  CHECK(estimate.metrics.contains("gradient_snr") == (directions == Directions::kIndependent));
}

TEST_CASE("FullES, TruncatedES and TruncatedPES run under the directions that they are told") {
  const auto problem = [](int64_t length) {
    return std::make_shared<ToyProblem>(ToyProblem::Dynamics{
        .theta_size = 5,
        .start = {0},
        .length = length,
        .advance = [](std::span<const double> theta, std::span<double>, int64_t) {
          double loss = 0;
          for (size_t i = 0; i < theta.size(); ++i) loss += static_cast<double>(i + 1) * theta[i];
          return loss;
        }});
  };
  const auto one_step = std::make_shared<ConstantTruncationSchedule>(
      ConstantTruncationSchedule::Options{.total_length = 1});
  for (const Directions directions : {Directions::kIndependent, Directions::kOrthogonal}) {
    CAPTURE(static_cast<int>(directions));
    const TruncatedOptions options{
        .num_tasks = 4, .trunc_length = 1, .std = .1, .directions = directions};
    CheckUses(FullES(problem(0), one_step, {.num_tasks = 4, .std = .1, .directions = directions}),
              4, directions);
    CheckUses(TruncatedES(problem(9), {options}), 4, directions);
    CheckUses(TruncatedPES(problem(9), options), 4, directions);
  }
}

}  // namespace
}  // namespace lopt
