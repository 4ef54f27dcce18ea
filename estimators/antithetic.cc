#include "lopt/estimators/antithetic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/estimators/pairs_gradient.h"

namespace lopt {

std::vector<Key> PairKeys(Key key, int64_t pairs) {
  std::vector<Key> keys = SplitKey(key, pairs);
  keys.insert(keys.end(), keys.begin(), keys.begin() + pairs);
  return keys;
}

namespace {

bool Usable(const UnrollTrace& trace, int64_t step, int64_t pair) {
  const int64_t pairs = trace.loss.cols() / 2;
  return std::isfinite(trace.loss(step, pair)) && std::isfinite(trace.loss(step, pair + pairs));
}

}  // namespace

Eigen::ArrayXXd PairDifferences(const UnrollTrace& trace) {
  const int64_t pairs = trace.loss.cols() / 2;
  Eigen::ArrayXXd differences(trace.loss.rows(), pairs);
  for (int64_t n = 0; n < pairs; ++n) {
    for (int64_t k = 0; k < trace.loss.rows(); ++k) {
      differences(k, n) = Usable(trace, k, n) ? trace.loss(k, n) - trace.loss(k, n + pairs) : 0.0;
    }
  }
  return differences;
}

void LossSum::Add(const UnrollTrace& trace) {
  const int64_t pairs = trace.loss.cols() / 2;
  for (int64_t n = 0; n < pairs; ++n) {
    for (int64_t k = 0; k < trace.loss.rows(); ++k) {
      if (Usable(trace, k, n)) {
        sum += trace.loss(k, n) + trace.loss(k, n + pairs);
        count += 2;
      }
    }
  }
}

double LossSum::Mean() const {
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

StepCounts CountSteps(const UnrollTrace& trace) {
  return {.inner_steps = trace.loss.size(),
          .non_finite = trace.non_finite.count(),
          .episodes_ended = trace.is_last.count()};
}

Eigen::VectorXd WeightedPerturbations(std::span<const double> weights, std::span<const float> rows,
                                      double std) {
  Require(!weights.empty() && rows.size() % weights.size() == 0,
          "antithetic gradient: {} numbers in {} rows of perturbations", rows.size(),
          weights.size());
  const auto pairs = std::ssize(weights);
  const auto dimension = std::ssize(rows) / pairs;
  Eigen::VectorXd sum = Eigen::VectorXd::Zero(dimension);
  for (int64_t n = 0; n < pairs; ++n) {
    const Eigen::Map<const Eigen::VectorXf> row(rows.data() + n * dimension, dimension);
    sum += weights[static_cast<size_t>(n)] * row.cast<double>();
  }
  return sum / (2.0 * std * std * static_cast<double>(pairs));
}

double SumOfSquaredGradients(std::span<const double> weights, std::span<const float> rows,
                             double std) {
  const size_t dimension = rows.size() / weights.size();
  double sum = 0;
  for (size_t n = 0; n < weights.size(); ++n) {
    const auto row = rows.subspan(n * dimension, dimension);
    sum += weights[n] * weights[n] * Dot(row, row);
  }
  return sum / (4.0 * std * std * std * std);
}

void RequireMoves(std::span<const float> theta, double std) {
  // Nearly all normal numbers are within 4 standard deviations.
  const auto reach = static_cast<float>(4 * std);
  const auto still = std::ranges::count_if(theta, [&](float x) { return x + reach == x; });
  if (2 * still <= std::ssize(theta)) return;
  float greatest = 0;
  for (const float x : theta) greatest = std::max(greatest, std::abs(x));
  Fail(
      "perturbations of std {} leave {} of theta's {} numbers as they are in float32, so no "
      "gradient can be told from them; the greatest of theta is {:.3g}: take a std of at least "
      "{:.1g}",
      std, still, theta.size(), greatest, static_cast<double>(greatest) * 0x1p-20);
}

void RequireDirections(const char* type, Directions directions, const InnerProblem& problem) {
  Require(directions == Directions::kIndependent || problem.device() == nullptr,
          "{}: directions '{}' cannot be made on a device; wanted '{}', or the device 'cpu'", type,
          NameOf("directions", directions, kDirections),
          NameOf("directions", Directions::kIndependent, kDirections));
}

AntitheticPairs::AntitheticPairs(const InnerProblem& problem, const WorkerWeights& weights, Key key,
                                 int64_t pairs, double std, Directions directions)
    : AntitheticPairs(problem, weights, key,
                      Perturbations(SplitKey(FoldIn(key, kPerturbationDraw), pairs), std,
                                    problem.theta_layout().size(), directions)) {}

AntitheticPairs::AntitheticPairs(const InnerProblem& problem, const WorkerWeights& weights, Key key,
                                 Perturbations perturbations)
    : problem_(problem),
      weights_(weights),
      key_(key),
      perturbations_(std::move(perturbations)),
      keys_(PairKeys(FoldIn(key, kUnrollDraw), perturbations_.pairs())) {
  RequireDirections("antithetic pairs", perturbations_.directions(), problem);
  RequireMoves(AsSpan(weights.theta), perturbations_.std());
}

ThetaRows AntitheticPairs::rows() const {
  return {.theta = AsSpan(weights_.theta), .rows = 2 * pairs(), .perturbations = &perturbations_};
}

UnrollState AntitheticPairs::Start(std::optional<int64_t> horizon) const {
  return problem_.Start(rows(), weights_.outer, PairKeys(FoldIn(key_, kStartDraw), pairs()),
                        horizon);
}

UnrollTrace AntitheticPairs::Run(int64_t steps, UnrollState* replicas) {
  UnrollTrace trace;
  problem_.Run({.theta = rows(),
                .outer = weights_.outer,
                .keys = keys_,
                .steps = steps,
                .state = replicas,
                .trace = &trace});
  counts_ += CountSteps(trace);
  loss_.Add(trace);
  losses_.Add(trace);
  noted_.Add(trace);
  return trace;
}

void AntitheticPairs::RunTheta(int64_t steps, UnrollState* replicas) {
  UnrollTrace trace;
  problem_.Run({.theta = {.theta = AsSpan(weights_.theta), .rows = pairs()},
                .outer = weights_.outer,
                .keys = std::span(keys_).first(static_cast<size_t>(pairs())),
                .steps = steps,
                .state = replicas,
                .trace = &trace});
  counts_ += CountSteps(trace);
}

Eigen::ArrayXd AntitheticPairs::MetaLossDifferences(int64_t samples,
                                                    const UnrollState& replicas) const {
  Eigen::ArrayXd positive = Eigen::ArrayXd::Zero(pairs());
  Eigen::ArrayXd negative = Eigen::ArrayXd::Zero(pairs());
  Eigen::ArrayXd finite = Eigen::ArrayXd::Zero(pairs());
  std::vector<double> losses(keys_.size());
  for (int64_t sample = 0; sample < samples; ++sample) {
    const Key key = FoldIn(FoldIn(key_, kOuterBatchDraw), static_cast<uint64_t>(sample));
    problem_.MetaLoss(rows(), PairKeys(key, pairs()), replicas, losses);
    for (int64_t n = 0; n < pairs(); ++n) {
      if (std::isfinite(losses[n]) && std::isfinite(losses[n + pairs()])) {
        positive(n) += losses[n];
        negative(n) += losses[n + pairs()];
        finite(n) += 1;
      }
    }
  }
  Eigen::ArrayXd differences = Eigen::ArrayXd::Zero(pairs());
  for (int64_t n = 0; n < pairs(); ++n) {
    if (finite(n) == 0) continue;
    differences(n) =
        problem_.OnScale(positive(n) / finite(n)) - problem_.OnScale(negative(n) / finite(n));
  }
  return differences;
}

GradientEstimate AntitheticPairs::Estimate(std::span<const double> differences) const {
  PairsGradient of = GradientOfPairs(problem_, perturbations_, differences);
  return Estimate(std::move(of.gradient), of.squares);
}

GradientEstimate AntitheticPairs::Estimate(Eigen::VectorXf gradient, double squares) const {
  GradientEstimate estimate;
  estimate.gradient = std::move(gradient);
  estimate.mean_loss = loss_.Mean();
  estimate.counts = counts_;
  losses_.WriteTo(&estimate.metrics);
  noted_.WriteTo(&estimate.metrics);
  // The ratio takes the pairs' gradients as independent.
  if (perturbations_.directions() == Directions::kIndependent) {
    WriteGradientSnr(estimate.gradient, squares, pairs(), &estimate.metrics);
  }
  return estimate;
}

}  // namespace lopt
