#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/choices.h"
#include "lopt/learner/worker.h"

namespace lopt {

// What became of an inner step.
enum class Outcome {
  kUsed,      // in an update of theta
  kStale,     // of weights too old when it arrived (mode "Async")
  kLate,      // arrived when the update had gone ahead (deadline_seconds)
  kLost,      // with a process that died, rolled back, or left over at the end
  kNonFinite  // a loss that was not finite, or an update skipped because of one
};

// All of them, in the order in which they are stored and shown.
inline constexpr Named<Outcome> kOutcomes[] = {{Outcome::kUsed, "used"},
                                               {Outcome::kStale, "stale"},
                                               {Outcome::kLate, "late"},
                                               {Outcome::kLost, "lost"},
                                               {Outcome::kNonFinite, "non_finite"}};

// Inner steps by their outcome, both of a pair counted.
class StepShares {
 public:
  // Steps of this outcome, to be changed.
  int64_t& operator[](Outcome outcome) { return steps_[static_cast<size_t>(outcome)]; }
  // Steps of this outcome.
  int64_t operator[](Outcome outcome) const { return steps_[static_cast<size_t>(outcome)]; }
  // Steps of all outcomes.
  int64_t Total() const { return std::accumulate(steps_.begin(), steps_.end(), int64_t{0}); }
  // Adds up, outcome by outcome.
  StepShares& operator+=(const StepShares& other);
  bool operator==(const StepShares&) const = default;

 private:
  std::array<int64_t, std::size(kOutcomes)> steps_ = {};
};

// Windows [first, first + windows) of one logical worker, by the counts of their estimators.
struct WorkerWindows {
  int64_t worker = 0;   // its number
  int64_t first = 0;    // counted from the start of the run
  int64_t windows = 0;  // how many
};

// Accounts for every inner step of a run by worker and estimator. Windows that were rolled back
// become known when they are run again: their steps are counted as lost at that time, once for each
// time they were lost, so the shares add up to the steps of all windows started.
class Ledger {
 public:
  Ledger() = default;
  // With no steps yet.
  Ledger(int64_t workers, int64_t estimators);

  // Logical workers.
  int64_t workers() const { return workers_; }
  // Estimators of each.
  int64_t estimators() const { return estimators_; }

  // Of a used window the steps whose loss was not finite are counted as such.
  void Account(Outcome outcome, const WorkerWindows& windows, const AggregatedGradient& gradient);
  // Windows [from, to) of a worker were started and rolled back.
  void RollBack(int64_t worker, int64_t from, int64_t to);
  // Windows that were rolled back and have not been run again yet, each counted as often as it was
  // lost.
  int64_t UnknownWindows() const;

  // The steps of one estimator of one worker.
  const StepShares& Of(int64_t worker, int64_t estimator) const;
  // Those of all estimators of a worker.
  StepShares OfWorker(int64_t worker) const;
  // Those of an estimator on all workers.
  StepShares OfEstimator(int64_t estimator) const;
  // Those of all.
  StepShares Total() const;

  // For checkpoints: "shares" [workers, estimators, outcomes], "rolled_back" [n, 3]. FromArrays
  // throws Error on others.
  NamedArrays ToArrays() const;
  // The reverse.
  static Ledger FromArrays(const NamedArrays& arrays);

  bool operator==(const Ledger&) const = default;

 private:
  struct RolledBack {
    int64_t worker = 0;
    int64_t from = 0;
    int64_t to = 0;
    bool operator==(const RolledBack&) const = default;
  };

  StepShares& At(int64_t worker, int64_t estimator);

  int64_t workers_ = 0;
  int64_t estimators_ = 0;
  std::vector<StepShares> shares_;  // [workers, estimators]
  std::vector<RolledBack> rolled_back_;
};

}  // namespace lopt
