#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/compare.h"
#include "lopt/base/key.h"
#include "lopt/base/parallel.h"
#include "lopt/base/safetensors.h"
#include "lopt/estimators/check/checks.h"

namespace lopt::checks {
namespace {

constexpr const char* kEstimatorHeader = "lopt/estimators/gradient_estimator.h";

std::string Differing(const GradientEstimate& a, const GradientEstimate& b) {
  if (!SameBits(a.gradient, b.gradient)) return "gradient";
  if (!SameBits(std::vector{a.mean_loss}, std::vector{b.mean_loss})) return "mean loss";
  if (a.counts != b.counts) return "counts";
  return a.metrics == b.metrics ? "" : "metrics";
}

// Windows [first, last) of a worker.
std::vector<GradientEstimate> RunWindows(const GradientEstimator& estimator,
                                         const WorkerWeights& weights, int64_t first, int64_t last,
                                         EstimatorState* state) {
  std::vector<GradientEstimate> estimates;
  for (int64_t window = first; window < last; ++window) {
    WorkerWeights now = weights;
    now.outer.outer_step = window;
    estimates.push_back(
        estimator.Estimate(now, FoldIn(KeyFromSeed(31), static_cast<uint64_t>(window)), state));
  }
  return estimates;
}

EstimatorState FirstState(const GradientEstimator& estimator, const WorkerWeights& weights) {
  return estimator.InitWorkerState(weights, KeyFromSeed(32));
}

bool SameOutline(const EstimatorState& a, const EstimatorState& b) {
  return std::ranges::equal(a, b, [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.dtype() == other.second.dtype() &&
           one.second.shape() == other.second.shape();
  });
}

void CheckPure(const EstimatorUnderCheck& subject, Findings* findings) {
  const GradientEstimator& estimator = *subject.estimator;
  EstimatorState first = FirstState(estimator, subject.weights);
  EstimatorState second = FirstState(estimator, subject.weights);
  findings->Expect(first == second, "InitWorkerState called twice with one key differs");
  const auto window = [&](EstimatorState* state) {
    return RunWindows(estimator, subject.weights, 0, 1, state)[0];
  };
  const std::string differing = Differing(window(&first), window(&second));
  findings->Expect(differing.empty(),
                   "the same window twice has another {}: something is kept in the estimator, or "
                   "drawn from elsewhere than the key",
                   differing);
  findings->Expect(first == second, "the same window twice leaves another state");
}

// The same bits on 1, 2 and 8 threads; each window another gradient.
void CheckEstimatorThreads(const EstimatorUnderCheck& subject, Findings* findings) {
  const GradientEstimator& estimator = *subject.estimator;
  EstimatorState state = FirstState(estimator, subject.weights);
  const auto estimates = RunWindows(estimator, subject.weights, 0, 3, &state);
  for (const int threads : {1, 2, 8}) {
    ThreadPool(threads).Run([&] {
      EstimatorState other_state = FirstState(estimator, subject.weights);
      const auto others = RunWindows(estimator, subject.weights, 0, 3, &other_state);
      for (size_t window = 0; window < estimates.size(); ++window) {
        const std::string differing = Differing(estimates[window], others[window]);
        findings->Expect(differing.empty(), "on a pool of {} threads window {} has another {}",
                         threads, window, differing);
      }
      findings->Expect(state == other_state, "on a pool of {} threads the state is another",
                       threads);
    });
  }
}

// A state written to a file and read back goes on where it stood.
void CheckStateResumes(const EstimatorUnderCheck& subject, Findings* findings) {
  const GradientEstimator& estimator = *subject.estimator;
  const WorkerWeights& weights = subject.weights;
  EstimatorState whole = FirstState(estimator, weights);
  const auto estimates = RunWindows(estimator, weights, 0, 5, &whole);
  EstimatorState part = FirstState(estimator, weights);
  RunWindows(estimator, weights, 0, 2, &part);
  findings->Expect(SameOutline(part, estimator.OutlineState(weights, KeyFromSeed(32))),
                   "the state has other arrays, types or shapes than OutlineState says");
  EstimatorState another = FirstState(estimator, weights);
  RunWindows(estimator, weights, 7, 8, &another);  // something else in between
  const std::vector<std::byte> file = SerializeArrayFile({.arrays = part, .metadata = {}});
  EstimatorState resumed = ParseArrayFile(file, "the saved state").arrays;
  findings->Expect(resumed == part, "the state that was read is not the one that was written");
  const auto rest = RunWindows(estimator, weights, 2, 5, &resumed);
  for (size_t window = 0; window < rest.size(); ++window) {
    const std::string differing = Differing(rest[window], estimates[window + 2]);
    findings->Expect(differing.empty(),
                     "after 2 windows, saved and read back, window {} has another {} than without: "
                     "something is kept elsewhere than in the state",
                     window + 2, differing);
  }
  findings->Expect(whole == resumed, "the state after 5 windows is another than without saving");
  size_t bytes = 0;
  for (const auto& [name, array] : part) bytes += array.bytes().size();
  findings->Measure("{} bytes of state", bytes);
}

void CheckEstimates(const EstimatorUnderCheck& subject, Findings* findings) {
  const GradientEstimator& estimator = *subject.estimator;
  EstimatorState state = FirstState(estimator, subject.weights);
  const EstimatorState start = state;
  const auto estimates = RunWindows(estimator, subject.weights, 0, 4, &state);
  findings->Expect(state.size() == 0 || state != start, "4 windows leave the state as it is");
  findings->Expect(!SameBits(estimates[0].gradient, estimates[1].gradient),
                   "two windows with other keys have the same gradient: the key is not used");
  for (const GradientEstimate& estimate : estimates) {
    const StepCounts& counts = estimate.counts;
    findings->Expect(estimate.gradient.size() == estimator.theta_layout().size(),
                     "the gradient has {} numbers, theta has {}", estimate.gradient.size(),
                     estimator.theta_layout().size());
    findings->Expect(AllFinite(estimate.gradient), "the gradient is not finite");
    findings->Expect(!(estimate.gradient.squaredNorm() == 0), "the gradient is 0");
    findings->Expect(std::isfinite(estimate.mean_loss), "the mean loss is {}", estimate.mean_loss);
    findings->Expect(counts.inner_steps > 0, "it counts {} inner steps", counts.inner_steps);
    findings->Expect(subject.inner_steps == 0 || counts.inner_steps == subject.inner_steps,
                     "it counts {} inner steps, wanted {}", counts.inner_steps,
                     subject.inner_steps);
    findings->Expect(counts.non_finite == 0, "it counts {} losses that are not finite",
                     counts.non_finite);
    findings->Expect(counts.episodes_ended <= counts.inner_steps,
                     "it counts {} ends of episodes in {} inner steps", counts.episodes_ended,
                     counts.inner_steps);
  }
  findings->Measure("{} inner steps a window, a mean loss of {:.4g}",
                    estimates[0].counts.inner_steps, estimates[0].mean_loss);
}

// The size of a gradient does not grow as the perturbations shrink, because a pair shares all that
// is random.
void CheckPairsShareDraws(const EstimatorUnderCheck& subject, Findings* findings) {
  if (!subject.with_std) return findings->Measure("it has no perturbations");
  constexpr double kStd = 0.01;
  constexpr double kSmallStd = 0.0001;
  constexpr double kMost = 10;
  const auto size = [&](double std) {
    const auto estimator = subject.with_std(std);
    EstimatorState state = FirstState(*estimator, subject.weights);
    return RunWindows(*estimator, subject.weights, 0, 1, &state)[0].gradient.norm();
  };
  const double ratio = size(kSmallStd) / size(kStd);
  findings->Expect(ratio < kMost,
                   "perturbations of {} make a gradient {:.3g} times as long as those of {}, "
                   "accepted is {}: the replicas of a pair do not share their draws",
                   kSmallStd, ratio, kStd, kMost);
  findings->Measure("a hundredth of std: {:.2g} times the length", ratio);
}

void CheckThetaSize(const EstimatorUnderCheck& subject, Findings* findings) {
  EstimatorState state = FirstState(*subject.estimator, subject.weights);
  for (const int64_t change : {-1, 1}) {
    WorkerWeights wrong = subject.weights;
    wrong.theta = Eigen::VectorXf::Zero(subject.weights.theta.size() + change);
    findings->ExpectError("theta", [&] { subject.estimator->InitWorkerState(wrong, Key{}); });
    findings->ExpectError("theta", [&] { subject.estimator->Estimate(wrong, Key{}, &state); });
  }
}

// Which Error it is depends on the state.
void CheckOtherStates(const EstimatorUnderCheck& subject, Findings* findings) {
  for (const auto& other : subject.others) {
    EstimatorState state = FirstState(*other, subject.weights);
    findings->ExpectError("", [&] { subject.estimator->Estimate(subject.weights, Key{}, &state); });
  }
}

}  // namespace

const std::vector<Check<EstimatorUnderCheck>>& EstimatorChecks() {
  static const std::vector<Check<EstimatorUnderCheck>> checks = {
      {"theta size", "A theta of another size is an Error.", kEstimatorHeader, CheckThetaSize},
      {"pure", "The same weights, key and state give the same bits.", kEstimatorHeader, CheckPure},
      {"estimates",
       "Gradients are finite, of theta's size and another each window; steps are "
       "counted.",
       kEstimatorHeader,
       CheckEstimates,
       {"pure"}},
      {"threads",
       "Estimates have the same bits on any number of threads.",
       kEstimatorHeader,
       CheckEstimatorThreads,
       {"pure"}},
      {"resume",
       "The state is all: a saved one goes on, bit for bit.",
       kEstimatorHeader,
       CheckStateResumes,
       {"pure"}},
      {"pairs",
       "Pairs share their draws: gradients do not grow as perturbations shrink.",
       kEstimatorHeader,
       CheckPairsShareDraws,
       {"pure", "estimates"}},
      {"other states", "The state of an estimator of another type or task is an Error.",
       kEstimatorHeader, CheckOtherStates},
  };
  return checks;
}

}  // namespace lopt::checks
