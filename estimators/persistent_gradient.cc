#include "lopt/estimators/persistent_gradient.h"

#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/parallel.h"
#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/diagnostics.h"

namespace lopt {
namespace {

// What the losses of a window say of one pair: the first, which share one sum, and the later
// ones.
struct PairGradient {
  double weight = 0;      // of the sum that the former share
  Eigen::VectorXd later;  // [D], of the latter: weights times sums; empty if there are none
};

// Walks a pair through its losses. `first` [D] becomes the sum that the first of them share;
// `accumulator` [D] is brought up to date.
PairGradient WalkPair(std::span<const LossGroup> losses, const DrawPerturbation& draw, int64_t pair,
                      Eigen::Map<Eigen::ArrayXf> first, Eigen::Map<Eigen::ArrayXf> accumulator) {
  PairGradient gradient;
  Eigen::ArrayXf eps(accumulator.size());
  const std::span<float> drawn(eps.data(), static_cast<size_t>(eps.size()));
  for (const LossGroup& of : losses) {
    draw(pair, of.at, drawn);
    if (&of == losses.data()) {
      gradient.weight = of.weight;
      first = accumulator + eps;
    } else {
      if (gradient.later.size() == 0) {
        gradient.later = Eigen::VectorXd::Zero(accumulator.size());
      }
      gradient.later += of.weight * (accumulator + eps).cast<double>().matrix();
    }
    if (of.after == AccumulatorAfter::kGrows) {
      accumulator += eps;
    } else if (of.after == AccumulatorAfter::kEnds) {
      accumulator = 0;
    }
  }
  return gradient;
}

// Those of pair `pair`, in the window of `trace` with these differences.
std::vector<LossGroup> LossesOfPair(const UnrollTrace& trace, const Eigen::ArrayXXd& differences,
                                    const PerturbationClock& clock, int64_t pair) {
  const int64_t window = trace.loss.rows();
  std::vector<LossGroup> losses;
  int64_t begin = 0;  // the first loss that is not among them yet
  WindowStep at{.inner_step = trace.iteration(0, pair)};
  WindowStep next = at;
  for (int64_t k = 0; k < window; ++k) {
    const bool ends_window = k + 1 == window;
    const bool ends_episode = trace.is_last(k, pair);
    next.restarts += ends_episode ? 1 : 0;
    next.inner_step = ends_episode ? 0 : trace.iteration(k, pair) + 1;
    const bool new_block = clock.BeginsAt(next.inner_step);
    // Under one perturbation a third episode of a window has the second's sum.
    if (ends_window || new_block || (ends_episode && begin == 0)) {
      const double sum = differences.col(pair).segment(begin, k + 1 - begin).sum();
      const bool ends_block =
          new_block || (ends_window && clock.block == PerturbationClock::kWindow);
      losses.push_back({.at = at,
                        .weight = sum / static_cast<double>(window),
                        .after = ends_episode ? AccumulatorAfter::kEnds
                                 : ends_block ? AccumulatorAfter::kGrows
                                              : AccumulatorAfter::kStays});
      begin = k + 1;
    }
    if (new_block) {
      at = next;
    }
  }
  return losses;
}

}  // namespace

PairsLosses LossGroupsOf(const UnrollTrace& trace, const PerturbationClock& clock,
                         std::optional<double> sign_delta_loss_scalar) {
  const int64_t window = trace.loss.rows();
  const int64_t pairs = trace.loss.cols() / 2;
  Require(window >= 1 && pairs >= 1 && trace.loss.cols() == 2 * pairs,
          "persistent gradient: a trace of {} steps of {} replicas, wanted antithetic pairs",
          window, trace.loss.cols());
  Eigen::ArrayXXd differences = PairDifferences(trace);
  if (sign_delta_loss_scalar) {
    differences =
        (differences.colwise().sum().sign() * *sign_delta_loss_scalar).eval().replicate(window, 1);
  }
  PairsLosses losses(static_cast<size_t>(pairs));
  for (int64_t n = 0; n < pairs; ++n) {
    losses[static_cast<size_t>(n)] = LossesOfPair(trace, differences, clock, n);
  }
  return losses;
}

Eigen::VectorXf PersistentGradient(const PairsLosses& losses, const DrawPerturbation& draw,
                                   double std, std::span<float> accumulator, double* squares) {
  const auto pairs = std::ssize(losses);
  Require(std > 0, "persistent gradient: std must be above 0, got {}", std);
  Require(pairs >= 1 && std::ssize(accumulator) % pairs == 0,
          "persistent gradient: accumulators of {} numbers for {} pairs", accumulator.size(),
          pairs);
  const int64_t dimension = std::ssize(accumulator) / pairs;
  std::vector<float> first(accumulator.size());  // [N, D]
  std::vector<double> weights(pairs);
  std::vector<Eigen::VectorXd> later(pairs);
  ParallelFor(pairs, [&](int64_t n) {
    PairGradient gradient =
        WalkPair(losses[static_cast<size_t>(n)], draw, n, {first.data() + n * dimension, dimension},
                 {accumulator.data() + n * dimension, dimension});
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
