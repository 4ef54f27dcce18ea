#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/arrays.h"
#include "base/eigen.h"
#include "base/key.h"
#include "base/parallel.h"
#include "base/safetensors.h"
#include "estimators/gradient_estimator.h"
#include "tests/contracts/check.h"

namespace lopt::contracts {

// What every GradientEstimator promises (estimators/gradient_estimator.h). Failures name no
// estimator: the caller does, with INFO.

inline bool SameBits(const GradientEstimate& a, const GradientEstimate& b) {
  return SameBits(a.gradient, b.gradient) &&
         SameBits(std::vector{a.mean_loss}, std::vector{b.mean_loss}) && a.counts == b.counts &&
         a.metrics == b.metrics;
}

// Windows [first, last) of a worker.
inline std::vector<GradientEstimate> RunWindows(const GradientEstimator& estimator,
                                                const WorkerWeights& weights, int64_t first,
                                                int64_t last, EstimatorState* state) {
  std::vector<GradientEstimate> estimates;
  for (int64_t window = first; window < last; ++window) {
    WorkerWeights now = weights;
    now.outer.outer_step = window;
    estimates.push_back(
        estimator.Estimate(now, FoldIn(KeyFromSeed(31), static_cast<uint64_t>(window)), state));
  }
  return estimates;
}

inline EstimatorState FirstState(const GradientEstimator& estimator, const WorkerWeights& weights) {
  return estimator.InitWorkerState(weights, KeyFromSeed(32));
}

// The same bits on 1, 2 and 8 threads; each window another gradient.
inline void CheckThreadsGiveTheSameBits(const GradientEstimator& estimator,
                                        const WorkerWeights& weights) {
  EstimatorState state = FirstState(estimator, weights);
  const auto estimates = RunWindows(estimator, weights, 0, 3, &state);
  CHECK_FALSE(SameBits(estimates[0].gradient, estimates[1].gradient));
  for (const int threads : {1, 2, 8}) {
    INFO(threads, " threads");
    ThreadPool(threads).Run([&] {
      EstimatorState other_state = FirstState(estimator, weights);
      const auto others = RunWindows(estimator, weights, 0, 3, &other_state);
      for (size_t window = 0; window < estimates.size(); ++window) {
        CHECK(SameBits(estimates[window], others[window]));
      }
      CHECK(state == other_state);
    });
  }
}

// A state written to a file and read back goes on where it stood.
inline void CheckStateResumes(const GradientEstimator& estimator, const WorkerWeights& weights,
                              const std::string& path) {
  EstimatorState whole = FirstState(estimator, weights);
  const auto estimates = RunWindows(estimator, weights, 0, 5, &whole);
  EstimatorState part = FirstState(estimator, weights);
  RunWindows(estimator, weights, 0, 2, &part);
  WriteArrayFile(path, {.arrays = part, .metadata = {}});
  EstimatorState resumed = ReadArrayFile(path).arrays;
  CHECK(resumed == part);
  const auto rest = RunWindows(estimator, weights, 2, 5, &resumed);
  for (size_t window = 0; window < rest.size(); ++window) {
    CHECK(SameBits(rest[window], estimates[window + 2]));
  }
  CHECK(whole == resumed);
}

// On tasks that do not diverge. `inner_steps` of a window, 0: any number.
inline void CheckEstimates(const GradientEstimator& estimator, const WorkerWeights& weights,
                           int64_t inner_steps) {
  EstimatorState state = FirstState(estimator, weights);
  const EstimatorState start = state;
  const auto estimates = RunWindows(estimator, weights, 0, 4, &state);
  CHECK((state.size() == 0 || state != start));
  for (const GradientEstimate& estimate : estimates) {
    CHECK(estimate.gradient.size() == estimator.theta_layout().size());
    CHECK(AllFinite(estimate.gradient));
    CHECK(estimate.gradient.squaredNorm() > 0);
    CHECK(std::isfinite(estimate.mean_loss));
    CHECK(estimate.counts.inner_steps > 0);
    CHECK((inner_steps == 0 || estimate.counts.inner_steps == inner_steps));
    CHECK(estimate.counts.non_finite == 0);
    CHECK(estimate.counts.episodes_ended <= estimate.counts.inner_steps);
  }
}

// The size of a gradient does not grow as the perturbations shrink, because twins share all that is
// random. `small` is `estimator` with a hundredth of its std.
inline void CheckTwinsShareTheirDraws(const GradientEstimator& estimator,
                                      const GradientEstimator& small,
                                      const WorkerWeights& weights) {
  const auto size = [&](const GradientEstimator& which) {
    EstimatorState state = FirstState(which, weights);
    return RunWindows(which, weights, 0, 1, &state)[0].gradient.norm();
  };
  CHECK(size(small) < 10 * size(estimator));
}

inline void CheckWrongThetaThrows(const GradientEstimator& estimator,
                                  const WorkerWeights& weights) {
  EstimatorState state = FirstState(estimator, weights);
  for (const int64_t change : {-1, 1}) {
    WorkerWeights wrong = weights;
    wrong.theta = Eigen::VectorXf::Zero(weights.theta.size() + change);
    CheckThrows("theta", [&] { estimator.InitWorkerState(wrong, Key{}); });
    CheckThrows("theta", [&] { estimator.Estimate(wrong, Key{}, &state); });
  }
}

// `other` is of another type. Which Error it is depends on the state.
inline void CheckStateOfAnotherThrows(const GradientEstimator& estimator,
                                      const GradientEstimator& other,
                                      const WorkerWeights& weights) {
  EstimatorState state = FirstState(other, weights);
  CheckThrows("", [&] { estimator.Estimate(weights, Key{}, &state); });
}

}  // namespace lopt::contracts
