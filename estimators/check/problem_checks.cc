#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/compare.h"
#include "lopt/base/key.h"
#include "lopt/base/parallel.h"
#include "lopt/estimators/check/checks.h"
#include "lopt/estimators/truncation_schedule.h"
#include "lopt/lopt/check/optimizer_checks.h"

namespace lopt::checks {
namespace {

constexpr const char* kProblemHeader = "lopt/estimators/inner_problem.h";
constexpr int kManyThreads = 8;

// Replicas in the middle of their training, with what one window needs.
struct Unroll {
  std::vector<float> theta;
  std::shared_ptr<const Perturbations> perturbations;  // or null
  std::vector<Key> keys;
  OuterState outer;
  UnrollState state;

  ThetaRows rows() const {
    return {.theta = theta, .rows = std::ssize(keys), .perturbations = perturbations.get()};
  }
  Window window(int64_t steps, UnrollTrace* trace) {
    return {.theta = rows(),
            .outer = outer,
            .keys = keys,
            .steps = steps,
            .state = &state,
            .trace = trace};
  }
  UnrollTrace Run(const InnerProblem& problem, int64_t steps) {
    UnrollTrace trace;
    problem.Run(window(steps, &trace));
    return trace;
  }
};

// Keys of `pairs` pairs, each twice.
std::vector<Key> TwiceSplit(Key key, int64_t pairs) {
  std::vector<Key> keys = SplitKey(key, pairs);
  keys.insert(keys.end(), keys.begin(), keys.begin() + pairs);
  return keys;
}

// `pairs` antithetic pairs whose perturbations have the standard deviation `std`.
Unroll StartPairs(const InnerProblem& problem, const std::vector<float>& theta, int64_t pairs,
                  double std, std::optional<int64_t> horizon = {}) {
  Unroll unroll{.theta = theta,
                .perturbations = std::make_shared<Perturbations>(SplitKey(KeyFromSeed(12), pairs),
                                                                 std, std::ssize(theta)),
                .keys = TwiceSplit(KeyFromSeed(11), pairs),
                .outer = {.outer_step = 3},
                .state = {}};
  unroll.state =
      problem.Start(unroll.rows(), unroll.outer, TwiceSplit(KeyFromSeed(13), pairs), horizon);
  return unroll;
}

std::string Differing(const UnrollTrace& a, const UnrollTrace& b) {
  if (!SameBits(a.loss, b.loss)) return "losses";
  if (!SameBits(a.is_last, b.is_last) || !SameBits(a.iteration, b.iteration)) return "episodes";
  return SameBits(a.non_finite, b.non_finite) ? "" : "flags of losses that are not finite";
}

// The trace of two windows, one after the other.
UnrollTrace Joined(const UnrollTrace& first, const UnrollTrace& second) {
  UnrollTrace both;
  const int64_t steps = first.loss.rows();
  both.Resize(steps + second.loss.rows(), first.loss.cols());
  const auto join = [&](auto member) {
    (both.*member).topRows(steps) = first.*member;
    (both.*member).bottomRows(second.loss.rows()) = second.*member;
  };
  join(&UnrollTrace::loss);
  join(&UnrollTrace::is_last);
  join(&UnrollTrace::non_finite);
  join(&UnrollTrace::iteration);
  return both;
}

// One window of 50 steps is two of 25 under the same keys, on any number of threads.
void CheckWindows(const ProblemUnderCheck& subject, Findings* findings) {
  const InnerProblem& problem = *subject.problem;
  const Unroll start = StartPairs(problem, subject.theta, 2, 0.01);
  Unroll whole = start;
  const UnrollTrace trace = whole.Run(problem, 50);
  const auto differing = [&](const UnrollTrace& other_trace, const Unroll& other) {
    const std::string traces = Differing(trace, other_trace);
    return traces.empty() && whole.state != other.state ? "state" : traces;
  };
  Unroll halves = start;
  const auto run_halves = [&] {
    const UnrollTrace first = halves.Run(problem, 25);
    return Joined(first, halves.Run(problem, 25));
  };
  UnrollTrace halves_trace;
  ThreadPool(kManyThreads).Run([&] { halves_trace = run_halves(); });
  const std::string other = differing(halves_trace, halves);
  if (!findings->Expect(other.empty(),
                        "two windows of 25 steps on {} threads have other {} than "
                        "one of 50 on one thread",
                        kManyThreads, other)) {
    Unroll again = start;
    const std::string repeated = differing(again.Run(problem, 50), again);
    halves = start;
    const std::string split = differing(run_halves(), halves);
    findings->Expect(repeated.empty(),
                     "the same window twice has other {}: something is kept elsewhere than in the "
                     "state",
                     repeated);
    findings->Expect(!repeated.empty() || split.empty(),
                     "on one thread as well: something of the replicas is not in the state");
    findings->Expect(!repeated.empty() || !split.empty(), "on one thread they have the same");
  }
  findings->Expect(whole.state != start.state, "50 steps leave the state as it is");
  findings->Expect(trace.is_last.any() == problem.EpisodesEnd(),
                   "EpisodesEnd() is {}, but {} of the episodes ends in 50 steps",
                   problem.EpisodesEnd(), trace.is_last.any() ? "one" : "none");
}

// Of losses of pairs under the same theta, relative to 1 + the loss.
double PairTolerance(const ProblemUnderCheck& subject) { return subject.one_by_one ? 0 : 1e-6; }

// Pairs differ by nothing at all where their perturbation is 0, and by little where it is small.
void CheckPairs(const ProblemUnderCheck& subject, Findings* findings) {
  constexpr int64_t kPairs = 3;
  const auto largest = [&](double std) {
    const UnrollTrace trace =
        StartPairs(*subject.problem, subject.theta, kPairs, std).Run(*subject.problem, 30);
    const Eigen::ArrayXXd differences =
        ((trace.loss.leftCols(kPairs) - trace.loss.rightCols(kPairs)) /
         (1 + trace.loss.leftCols(kPairs).abs()))
            .abs();
    return differences.isNaN().any() ? std::numeric_limits<double>::infinity()
                                     : differences.maxCoeff();
  };
  const double none = largest(0);
  findings->Expect(none <= PairTolerance(subject),
                   "pairs under the same theta differ by {:.3g}, relative to 1 + their loss: they "
                   "do not share their draws, or one depends on the other",
                   none);
  const double little = largest(1e-6);
  findings->Expect(little < 1e-3, "perturbations of 1e-6 make pairs differ by {:.3g}", little);
}

// When episodes end does not depend on theta, and what a trace says of them fits together.
void CheckEpisodes(const ProblemUnderCheck& subject, Findings* findings) {
  const InnerProblem& problem = *subject.problem;
  const UnrollTrace trace = StartPairs(problem, subject.theta, 2, 0).Run(problem, 40);
  const UnrollTrace other = StartPairs(problem, subject.other_theta, 2, 0.1).Run(problem, 40);
  findings->Expect(SameBits(trace.is_last, other.is_last),
                   "under another theta episodes end at other steps");
  findings->Expect(SameBits(trace.iteration, other.iteration),
                   "under another theta iterations are counted otherwise");
  findings->Expect(!SameBits(trace.loss, other.loss), "another theta has the same losses");
  for (int64_t b = 0; b < trace.loss.cols(); ++b) {
    for (int64_t k = 0; k < trace.loss.rows(); ++k) {
      const int64_t expected =
          k == 0 || trace.is_last(k - 1, b) ? 0 : trace.iteration(k - 1, b) + 1;
      findings->Expect(trace.iteration(k, b) == expected,
                       "step {} of replica {} is iteration {} of its episode, wanted {}", k, b,
                       trace.iteration(k, b), expected);
    }
  }
}

// Under a horizon one episode ends, once, and nothing restarts.
void CheckHorizon(const ProblemUnderCheck& subject, Findings* findings) {
  constexpr int64_t kHorizon = 7;
  const int64_t steps = subject.past_horizon ? 20 : kHorizon;
  const UnrollTrace trace =
      StartPairs(*subject.problem, subject.theta, 2, 0, kHorizon).Run(*subject.problem, steps);
  for (int64_t k = 0; k < trace.loss.rows(); ++k) {
    findings->Expect((trace.iteration.row(k) == k).all(),
                     "under a horizon of {} step {} is iteration {}, wanted {}", kHorizon, k,
                     trace.iteration(k, 0), k);
    findings->Expect((trace.is_last.row(k) == (k == kHorizon - 1)).all(),
                     "under a horizon of {} is_last of step {} is {}", kHorizon, k,
                     bool{trace.is_last(k, 0)});
  }
}

// A replica does not know which other replicas run beside it.
void CheckReplicas(const ProblemUnderCheck& subject, Findings* findings) {
  constexpr int64_t kReplicas = 3;
  const InnerProblem& problem = *subject.problem;
  const auto start_with = [&](uint64_t seed) {
    return problem.Start({.theta = subject.theta, .rows = kReplicas}, {},
                         SplitKey(KeyFromSeed(seed), kReplicas));
  };
  Unroll all{.theta = subject.theta,
             .perturbations = {},
             .keys = SplitKey(KeyFromSeed(21), kReplicas),
             .outer = {},
             .state = start_with(22)};
  const UnrollState start = all.state;
  findings->Expect(start == start_with(22), "the same keys start otherwise the second time");
  if (subject.random_starts) {
    findings->Expect(start != start_with(23),
                     "other keys start the same: Start does not use its keys");
  } else {
    findings->Measure("all keys start the same");
  }
  if (!subject.one_by_one) {
    findings->Measure("replicas advance in lockstep: not compared with one alone");
    return;
  }
  const UnrollTrace together = all.Run(problem, 20);
  for (int64_t b = 0; b < kReplicas; ++b) {
    Unroll alone{.theta = subject.theta,
                 .perturbations = {},
                 .keys = {all.keys[b]},
                 .outer = {},
                 .state = TakeRows(start, b, 1)};
    const UnrollTrace trace = alone.Run(problem, 20);
    findings->Expect(SameBits(trace.loss, Eigen::ArrayXXd(together.loss.col(b))),
                     "replica {} of {} has other losses than alone", b, kReplicas);
    findings->Expect(alone.state == TakeRows(all.state, b, 1),
                     "replica {} of {} has another state than alone", b, kReplicas);
  }
}

void CheckMetaLoss(const ProblemUnderCheck& subject, Findings* findings) {
  const InnerProblem& problem = *subject.problem;
  Unroll unroll = StartPairs(problem, subject.theta, 2, 0);
  const UnrollTrace trace = unroll.Run(problem, 8);
  findings->Expect(((trace.loss.leftCols(2) - trace.loss.rightCols(2)).abs() <=
                    PairTolerance(subject) * (1 + trace.loss.leftCols(2).abs()))
                       .all(),
                   "pairs under the same theta have different losses on the way");
  std::vector<double> losses(4);
  std::vector<double> again(4);
  problem.MetaLoss(unroll.rows(), unroll.keys, unroll.state, losses);
  ThreadPool(kManyThreads).Run([&] {
    problem.MetaLoss(unroll.rows(), unroll.keys, unroll.state, again);
  });
  findings->Expect(SameBits(losses, again), "on {} threads it is another", kManyThreads);
  findings->Expect(AllFinite(losses), "it is not finite after 8 steps");
  for (const size_t pair : {0, 1}) {
    const double accepted = PairTolerance(subject) * (1 + std::abs(losses[pair]));
    findings->Expect(std::abs(losses[pair] - losses[pair + 2]) <= accepted,
                     "that of pairs under the same theta is {} and {}", losses[pair],
                     losses[pair + 2]);
  }
}

void CheckRows(const ProblemUnderCheck& subject, Findings* findings) {
  const InnerProblem& problem = *subject.problem;
  const std::vector<float>& theta = subject.theta;
  const Unroll good = StartPairs(problem, theta, 2, 0.01);
  const auto expect = [&](const char* word, const auto& spoil) {
    Unroll spoilt = good;
    ThetaRows rows = spoilt.rows();
    spoil(spoilt, rows);
    UnrollTrace trace;
    std::vector<double> losses(4);
    findings->ExpectError(word, [&] {
      Window window = spoilt.window(2, &trace);
      window.theta = rows;
      problem.Run(window);
    });
    findings->ExpectError(word, [&] { problem.MetaLoss(rows, spoilt.keys, spoilt.state, losses); });
  };
  const auto dimension = std::ssize(theta);
  const Perturbations longer(SplitKey(Key{}, 2), 0.01, dimension + 1);
  const Perturbations of_three(SplitKey(Key{}, 3), 0.01, dimension);
  expect("theta", [](Unroll&, ThetaRows& rows) { rows.theta = rows.theta.subspan(1); });
  expect("perturbations", [&](Unroll&, ThetaRows& rows) { rows.perturbations = &longer; });
  expect("perturbations", [&](Unroll&, ThetaRows& rows) { rows.perturbations = &of_three; });
  expect("perturbations", [](Unroll&, ThetaRows& rows) { rows.rows = 2; });
  expect("keys", [](Unroll& u, ThetaRows&) { u.keys.pop_back(); });
  expect("replicas", [](Unroll& u, ThetaRows&) { u.state = TakeRows(u.state, 0, 3); });
  expect("replicas", [](Unroll& u, ThetaRows&) {
    u.state.Set(u.state.begin()->first, Array(DType::kFloat32, {5, 1}));
  });
  expect("no arrays", [](Unroll& u, ThetaRows&) { u.state = {}; });
  Unroll unroll = good;
  findings->ExpectError("steps", [&] { unroll.Run(problem, 0); });
  std::vector<double> few(3);
  findings->ExpectError("losses",
                        [&] { problem.MetaLoss(good.rows(), good.keys, good.state, few); });
  findings->ExpectError("rows", [&] { problem.Start({.theta = theta, .rows = 0}, {}, {}); });
  findings->ExpectError(
      "keys", [&] { problem.Start({.theta = theta, .rows = 2}, {}, SplitKey(Key{}, 1)); });
  findings->ExpectError(
      "horizon", [&] { problem.Start({.theta = theta, .rows = 1}, {}, SplitKey(Key{}, 1), 0); });
}

// Each array of the state of another type is refused; LoptState names it.
void CheckStateArrays(const ProblemUnderCheck& subject, Findings* findings) {
  const InnerProblem& problem = *subject.problem;
  const bool names_arrays = dynamic_cast<const LoptProblem*>(&problem) != nullptr;
  const Unroll good = StartPairs(problem, subject.theta, 2, 0.01);
  for (const auto& [name, array] : good.state) {
    Unroll spoilt = good;
    spoilt.state.Set(name, Array(DType::kUint8, array.shape()));
    findings->ExpectError(names_arrays ? name : "", [&] { spoilt.Run(problem, 2); });
    if (!names_arrays) continue;  // others' meta-loss need not look at every array
    std::vector<double> losses(spoilt.keys.size());
    findings->ExpectError(
        name, [&] { problem.MetaLoss(spoilt.rows(), spoilt.keys, spoilt.state, losses); });
  }
}

void CheckNotFiniteTheta(const ProblemUnderCheck& subject, Findings* findings) {
  const std::vector<float> theta(subject.theta.size(), kNaN);
  const UnrollTrace trace = StartPairs(*subject.problem, theta, 1, 0).Run(*subject.problem, 20);
  for (int64_t k = 0; k < trace.loss.rows(); ++k) {
    const double loss = trace.loss(k, 0);
    findings->Expect(std::isfinite(loss) || trace.non_finite(k, 0),
                     "under a theta of NaN step {} has the loss {} and is not counted as one that "
                     "is not finite",
                     k, loss);
    findings->Expect(!std::isinf(loss),
                     "under a theta of NaN step {} has the loss {}; what must not be used is NaN",
                     k, loss);
  }
  findings->Expect(trace.non_finite.any(),
                   "under a theta of NaN no loss of 20 steps is counted as one that is not finite");
}

void MeasureCost(const ProblemUnderCheck& subject, Findings* findings) {
  constexpr double kLongEnough = 0.02;
  constexpr int64_t kMostSteps = 4096;
  Unroll unroll{.theta = subject.theta,
                .perturbations = {},
                .keys = {KeyFromSeed(21)},
                .outer = {},
                .state = {}};
  unroll.state = subject.problem->Start({.theta = subject.theta, .rows = 1}, {}, unroll.keys);
  size_t bytes = 0;
  for (const auto& [name, array] : unroll.state) bytes += array.bytes().size();
  const CountAllocations allocations = findings->allocations();
  const Allocations before = allocations == nullptr ? Allocations{} : allocations();
  unroll.Run(*subject.problem, 1);
  const Allocations after = allocations == nullptr ? Allocations{} : allocations();
  double seconds = 0;
  int64_t steps = 8;
  for (;; steps *= 2) {
    const double start = SecondsNow();
    unroll.Run(*subject.problem, steps);
    seconds = SecondsNow() - start;
    if (seconds >= kLongEnough || steps >= kMostSteps) break;
  }
  findings->Measure("{:.4g} us a step", seconds / static_cast<double>(steps) * 1e6);
  findings->Measure("{} bytes of state a replica", bytes);
  if (allocations != nullptr) findings->Measure("{} bytes of scratch", after.bytes - before.bytes);
}

}  // namespace

const std::vector<Check<ProblemUnderCheck>>& ProblemChecks() {
  // Those of the tasks that are trained, where they were made before.
  const std::vector<std::string> of_tasks = {"draws", "inputs", "pure", "outputs"};
  static const std::vector<Check<ProblemUnderCheck>> checks = {
      {"sizes", "Rows, keys, replicas and steps that do not go together are an Error.",
       kProblemHeader, CheckRows},
      {"state arrays", "A state whose arrays are of another type is an Error.", kProblemHeader,
       CheckStateArrays},
      {"windows", "A window of 50 steps is two of 25, bit for bit, on any number of threads.",
       kProblemHeader, CheckWindows, of_tasks},
      {"pairs", "Equal keys are equal draws: pairs differ by their perturbations alone.",
       kProblemHeader, CheckPairs, of_tasks},
      {"episodes", "Episodes end independently of theta, and iterations count their steps.",
       kProblemHeader, CheckEpisodes},
      {"horizon", "Under a horizon one episode of that length runs and nothing restarts.",
       kProblemHeader, CheckHorizon},
      {"replicas",
       "A start is a function of its keys, and a replica does not know of others.",
       kProblemHeader,
       CheckReplicas,
       {"windows", "pairs"}},
      {"meta loss",
       "The meta-loss is finite, the same on any threads and within a pair.",
       kProblemHeader,
       CheckMetaLoss,
       {"pairs"}},
      {"not finite", "Losses that are not finite are counted, and NaN where not to be used.",
       kProblemHeader, CheckNotFiniteTheta},
      {"cost", "Time and memory of a replica, measured on one thread.", kProblemHeader,
       MeasureCost},
  };
  return checks;
}

ProblemUnderCheck TrainedBy(const std::shared_ptr<const LearnedOptimizer>& optimizer,
                            const std::shared_ptr<const TaskFamily>& task,
                            const LoptProblemOptions& options) {
  const auto episodes = std::make_shared<LogUniformLengthSchedule>(
      LogUniformLengthSchedule::Options{.min_length = 4, .max_length = 15});
  return {.problem = std::make_shared<LoptProblem>(task, optimizer, episodes, options),
          .theta = DrawTheta(*optimizer, 1),
          .other_theta = DrawTheta(*optimizer, 2),
          .one_by_one = task->PreferredRows() != TaskFamily::kAllRows,
          .past_horizon = optimizer->needs_num_steps().empty()};
}

}  // namespace lopt::checks
