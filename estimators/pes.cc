#include "estimators/pes.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "estimators/antithetic.h"
#include "estimators/diagnostics.h"

namespace lopt {
namespace {

// sum_n |a[n] x[n] + b[n] y[n]|^2 for rows x and y [N, D].
double SquaredNorms(std::span<const double> a, std::span<const float> x, std::span<const double> b,
                    std::span<const float> y) {
  const size_t dimension = x.size() / a.size();
  double sum = 0;
  for (size_t n = 0; n < a.size(); ++n) {
    const auto x_row = x.subspan(n * dimension, dimension);
    const auto y_row = y.subspan(n * dimension, dimension);
    sum += a[n] * a[n] * Dot(x_row, x_row);
    if (b[n] != 0) {
      sum += 2 * a[n] * b[n] * Dot(x_row, y_row) + b[n] * b[n] * Dot(y_row, y_row);
    }
  }
  return sum;
}

}  // namespace

Eigen::VectorXf PesGradient(const UnrollTrace& trace, std::span<const float> perturbations,
                            double std, std::span<float> felt, double* squares,
                            std::optional<double> sign_delta_loss_scalar) {
  const int64_t window = trace.loss.rows();
  const int64_t pairs = trace.loss.cols() / 2;
  Require(std > 0, "PES: std must be above 0, got {}", std);
  Require(window >= 1 && pairs >= 1 && trace.loss.cols() == 2 * pairs,
          "PES: a trace of {} steps of {} replicas, wanted antithetic pairs", window,
          trace.loss.cols());
  Require(std::ssize(perturbations) % pairs == 0, "PES: {} numbers of perturbations for {} pairs",
          perturbations.size(), pairs);
  Require(felt.size() == perturbations.size(),
          "PES: {} numbers of felt perturbations, {} of new ones", felt.size(),
          perturbations.size());
  const int64_t dimension = std::ssize(perturbations) / pairs;
  Eigen::ArrayXXd differences = TwinDifferences(trace);
  if (sign_delta_loss_scalar) {
    differences =
        (differences.colwise().sum().sign() * *sign_delta_loss_scalar).eval().replicate(window, 1);
  }

  std::vector<double> before(pairs);  // sums up to and including the first episode end
  std::vector<double> after(pairs);
  std::vector<int64_t> first_end(pairs);  // `window` if there is none
  for (int64_t n = 0; n < pairs; ++n) {
    const auto* ends = trace.is_last.col(n).data();
    first_end[n] = std::find(ends, ends + window, true) - ends;
    const int64_t split = std::min(first_end[n] + 1, window);
    before[n] = differences.col(n).head(split).sum() / static_cast<double>(window);
    after[n] = differences.col(n).tail(window - split).sum() / static_cast<double>(window);
  }

  Eigen::Map<Eigen::ArrayXf> total(felt.data(), std::ssize(felt));
  const Eigen::Map<const Eigen::ArrayXf> eps(perturbations.data(), std::ssize(perturbations));
  total += eps;
  const Eigen::VectorXd gradient =
      WeightedPerturbations(before, felt, std) + WeightedPerturbations(after, perturbations, std);
  if (squares != nullptr) {
    *squares = SquaredNorms(before, felt, after, perturbations) / (4 * std * std * std * std);
  }
  for (int64_t n = 0; n < pairs; ++n) {
    auto carried = total.segment(n * dimension, dimension);
    if (trace.is_last(window - 1, n)) {
      carried.setZero();
    } else if (first_end[n] < window) {
      carried = eps.segment(n * dimension, dimension);
    }
  }
  return gradient.cast<float>();
}

}  // namespace lopt
