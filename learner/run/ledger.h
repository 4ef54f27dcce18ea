#pragma once

#include <cstdint>
#include <vector>

#include "base/arrays.h"
#include "learner/worker.h"

namespace lopt {

// What became of inner steps, twins counted each.
struct StepShares {
  int64_t used = 0;        // in an update of theta
  int64_t stale = 0;       // of weights too old when they arrived (mode "async")
  int64_t late = 0;        // arrived when the update had gone ahead (deadline_seconds)
  int64_t lost = 0;        // with a process that died, rolled back, or left over at the end
  int64_t non_finite = 0;  // a loss that was not finite, or an update skipped because of one

  int64_t Total() const { return used + stale + late + lost + non_finite; }
  StepShares& operator+=(const StepShares& other);
  bool operator==(const StepShares&) const = default;
};

// Windows [first, first + windows) of one logical worker, by the counts of their estimators.
struct WorkerWindows {
  int64_t worker = 0;
  int64_t first = 0;
  int64_t windows = 0;
};

// Accounts for every inner step of a run by worker and estimator. Windows that were rolled back
// become known when they are run again: their steps are counted as lost at that time, once for each
// time they were lost, so the shares add up to the steps of all windows started.
class Ledger {
 public:
  enum class Fate { kUsed, kStale, kLate, kLost, kNonFinite };

  Ledger() = default;
  Ledger(int64_t workers, int64_t estimators);

  int64_t workers() const { return workers_; }
  int64_t estimators() const { return estimators_; }

  // Of a used window the steps whose loss was not finite are counted as such.
  void Account(Fate fate, const WorkerWindows& windows, const AggregatedGradient& gradient);
  // Windows [from, to) of a worker were started and rolled back.
  void RollBack(int64_t worker, int64_t from, int64_t to);
  // Windows that were rolled back and have not been run again yet, each counted as often as it was
  // lost.
  int64_t UnknownWindows() const;

  const StepShares& Of(int64_t worker, int64_t estimator) const;
  StepShares OfWorker(int64_t worker) const;
  StepShares OfEstimator(int64_t estimator) const;
  StepShares Total() const;

  // For checkpoints: "shares" [workers, estimators, 5], "rolled_back" [n, 3]. FromArrays throws
  // Error on others.
  NamedArrays ToArrays() const;
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
