#include "estimators/persistent_gradient.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "estimators/antithetic.h"
#include "estimators/diagnostics.h"

namespace lopt {
namespace {

// What the losses of a window say of one pair: those up to the first change of the sum that the
// episode has felt, and the later ones.
struct PairGradient {
  double weight = 0;      // of the sum that the former have felt
  Eigen::VectorXd later;  // [D], of the latter: weights times sums; empty if there are none
};

// Walks pair `pair` through the window. `first` [D] becomes the sum that the losses up to the first
// change have felt; `felt` [D] is brought up to date.
PairGradient WalkPair(const UnrollTrace& trace, const Eigen::ArrayXXd& differences,
                      const PerturbationClock& clock, const DrawPerturbation& draw, int64_t pair,
                      Eigen::Map<Eigen::ArrayXf> first, Eigen::Map<Eigen::ArrayXf> felt) {
  const int64_t window = trace.loss.rows();
  PairGradient gradient;
  int64_t begin = 0;  // the first loss that has felt `felt` + `eps`
  Eigen::ArrayXf eps(felt.size());
  const auto weigh_losses_before = [&](int64_t end) {
    const double weight =
        differences.col(pair).segment(begin, end - begin).sum() / static_cast<double>(window);
    if (begin == 0) {
      gradient.weight = weight;
      first = felt + eps;
    } else {
      if (gradient.later.size() == 0) {
        gradient.later = Eigen::VectorXd::Zero(felt.size());
      }
      gradient.later += weight * (felt + eps).cast<double>().matrix();
    }
    begin = end;
  };

  WindowStep at{.inner_step = trace.iteration(0, pair)};
  const std::span<float> drawn(eps.data(), static_cast<size_t>(eps.size()));
  draw(pair, at, drawn);
  for (int64_t k = 0; k < window; ++k) {
    const bool ends_window = k + 1 == window;
    const bool ends_episode = trace.is_last(k, pair);
    at.restarts += ends_episode ? 1 : 0;
    at.inner_step = ends_episode ? 0 : trace.iteration(k, pair) + 1;
    const bool new_block = clock.BeginsAt(at.inner_step);
    // Under one perturbation a third episode of a window feels what the second has felt.
    if (ends_window || new_block || (ends_episode && begin == 0)) {
      weigh_losses_before(k + 1);
    }
    if (ends_episode) {
      felt = 0;
    } else if (new_block || (ends_window && clock.block == PerturbationClock::kWindow)) {
      felt += eps;
    }
    if (new_block && !ends_window) {
      draw(pair, at, drawn);
    }
  }
  return gradient;
}

}  // namespace

Eigen::VectorXf PersistentGradient(const UnrollTrace& trace, const PerturbationClock& clock,
                                   const DrawPerturbation& draw, double std, std::span<float> felt,
                                   double* squares, std::optional<double> sign_delta_loss_scalar) {
  const int64_t window = trace.loss.rows();
  const int64_t pairs = trace.loss.cols() / 2;
  Require(std > 0, "persistent gradient: std must be above 0, got {}", std);
  Require(window >= 1 && pairs >= 1 && trace.loss.cols() == 2 * pairs,
          "persistent gradient: a trace of {} steps of {} replicas, wanted antithetic pairs",
          window, trace.loss.cols());
  Require(std::ssize(felt) % pairs == 0,
          "persistent gradient: {} numbers of felt perturbations for {} pairs", felt.size(), pairs);
  const int64_t dimension = std::ssize(felt) / pairs;
  Eigen::ArrayXXd differences = TwinDifferences(trace);
  if (sign_delta_loss_scalar) {
    differences =
        (differences.colwise().sum().sign() * *sign_delta_loss_scalar).eval().replicate(window, 1);
  }

  std::vector<float> first(felt.size());  // [N, D]
  std::vector<double> weights(pairs);
  std::vector<Eigen::VectorXd> later(pairs);
  ParallelFor(pairs, [&](int64_t n) {
    PairGradient gradient =
        WalkPair(trace, differences, clock, draw, n, {first.data() + n * dimension, dimension},
                 {felt.data() + n * dimension, dimension});
    weights[n] = gradient.weight;
    later[n] = std::move(gradient.later);
  });

  Eigen::VectorXd sum_of_later = Eigen::VectorXd::Zero(dimension);
  double sum_of_squares = 0;
  for (int64_t n = 0; n < pairs; ++n) {
    const std::span row(first.data() + n * dimension, static_cast<size_t>(dimension));
    if (later[n].size() == 0) {
      sum_of_squares += weights[n] * weights[n] * Dot(row, row);
    } else {
      sum_of_later += later[n];
      const Eigen::Map<const Eigen::VectorXf> of_first(row.data(), dimension);
      sum_of_squares += (weights[n] * of_first.cast<double>() + later[n]).squaredNorm();
    }
  }
  if (squares != nullptr) {
    *squares = sum_of_squares / (4 * std * std * std * std);
  }
  const Eigen::VectorXd gradient = WeightedPerturbations(weights, first, std) +
                                   sum_of_later / (2.0 * std * std * static_cast<double>(pairs));
  return gradient.cast<float>();
}

}  // namespace lopt
