#include "estimators/antithetic.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/parallel.h"
#include "estimators/diagnostics.h"

namespace lopt {

std::vector<float> SamplePerturbations(Key key, int64_t pairs, int64_t dimension, double std) {
  std::vector<float> rows(static_cast<size_t>(pairs * dimension));
  const auto scale = static_cast<float>(std);
  ParallelFor(pairs, [&](int64_t n) {
    const std::span row(rows.data() + n * dimension, static_cast<size_t>(dimension));
    Normal(FoldIn(key, static_cast<uint64_t>(n)), row);
    for (float& value : row) {
      value *= scale;
    }
  });
  return rows;
}

std::vector<Key> TwinKeys(Key key, int64_t pairs) {
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

Eigen::ArrayXXd TwinDifferences(const UnrollTrace& trace) {
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

}  // namespace lopt
