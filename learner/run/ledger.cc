#include "lopt/learner/run/ledger.h"

#include <algorithm>

#include "lopt/base/error.h"

namespace lopt {
namespace {

constexpr auto kOutcomeCount = static_cast<int64_t>(std::size(kOutcomes));

}  // namespace

StepShares& StepShares::operator+=(const StepShares& other) {
  for (const auto& [outcome, name] : kOutcomes) {
    (*this)[outcome] += other[outcome];
  }
  return *this;
}

Ledger::Ledger(int64_t workers, int64_t estimators)
    : workers_(workers),
      estimators_(estimators),
      shares_(static_cast<size_t>(workers * estimators)) {}

StepShares& Ledger::At(int64_t worker, int64_t estimator) {
  return shares_[static_cast<size_t>(worker * estimators_ + estimator)];
}

const StepShares& Ledger::Of(int64_t worker, int64_t estimator) const {
  Require(worker >= 0 && worker < workers_ && estimator >= 0 && estimator < estimators_,
          "the ledger is of {} workers and {} estimators; there is no ({}, {})", workers_,
          estimators_, worker, estimator);
  return shares_[static_cast<size_t>(worker * estimators_ + estimator)];
}

void Ledger::Account(Outcome outcome, const WorkerWindows& windows,
                     const AggregatedGradient& gradient) {
  Require(windows.worker >= 0 && windows.worker < workers_ &&
              static_cast<int64_t>(gradient.estimators.size()) == estimators_,
          "the ledger is of {} workers and {} estimators, got worker {} with {} estimators",
          workers_, estimators_, windows.worker, gradient.estimators.size());
  int64_t times_lost = 0;
  std::erase_if(rolled_back_, [&](RolledBack& range) {
    if (range.worker != windows.worker) {
      return false;
    }
    times_lost += range.from <= windows.first && windows.first < range.to ? 1 : 0;
    range.from = std::max(range.from, windows.first + windows.windows);
    return range.from >= range.to;
  });
  for (int64_t e = 0; e < estimators_; ++e) {
    const StepCounts& counts = gradient.estimators[static_cast<size_t>(e)].counts;
    StepShares& shares = At(windows.worker, e);
    shares[Outcome::kLost] += times_lost * counts.inner_steps;
    const int64_t non_finite = outcome == Outcome::kUsed ? counts.non_finite : 0;
    shares[outcome] += counts.inner_steps - non_finite;
    shares[Outcome::kNonFinite] += non_finite;
  }
}

void Ledger::RollBack(int64_t worker, int64_t from, int64_t to) {
  Require(worker >= 0 && worker < workers_ && 0 <= from && from < to,
          "the ledger cannot roll back windows [{}, {}) of worker {}", from, to, worker);
  rolled_back_.push_back({.worker = worker, .from = from, .to = to});
}

int64_t Ledger::UnknownWindows() const {
  int64_t windows = 0;
  for (const RolledBack& range : rolled_back_) {
    windows += range.to - range.from;
  }
  return windows;
}

StepShares Ledger::OfWorker(int64_t worker) const {
  StepShares sum;
  for (int64_t e = 0; e < estimators_; ++e) {
    sum += Of(worker, e);
  }
  return sum;
}

StepShares Ledger::OfEstimator(int64_t estimator) const {
  StepShares sum;
  for (int64_t w = 0; w < workers_; ++w) {
    sum += Of(w, estimator);
  }
  return sum;
}

StepShares Ledger::Total() const {
  StepShares sum;
  for (const StepShares& shares : shares_) {
    sum += shares;
  }
  return sum;
}

NamedArrays Ledger::ToArrays() const {
  std::vector<int64_t> shares;
  for (const StepShares& from : shares_) {
    for (const auto& [outcome, name] : kOutcomes) {
      shares.push_back(from[outcome]);
    }
  }
  std::vector<int64_t> rolled_back;
  for (const RolledBack& range : rolled_back_) {
    rolled_back.insert(rolled_back.end(), {range.worker, range.from, range.to});
  }
  NamedArrays arrays;
  arrays.Set("shares", Array::Of<int64_t>({workers_, estimators_, kOutcomeCount}, shares));
  arrays.Set("rolled_back",
             Array::Of<int64_t>({static_cast<int64_t>(rolled_back_.size()), 3}, rolled_back));
  return arrays;
}

Ledger Ledger::FromArrays(const NamedArrays& arrays) {
  const Shape& shape = arrays.At("shares").shape();
  Require(shape.size() == 3 && shape[2] == kOutcomeCount,
          "the ledger's 'shares' must have shape [workers, estimators, {}], got {}", kOutcomeCount,
          ToString(shape));
  Ledger ledger(shape[0], shape[1]);
  const auto shares = arrays.At("shares").As<int64_t>();
  for (size_t i = 0; i < ledger.shares_.size(); ++i) {
    for (const auto& [outcome, name] : kOutcomes) {
      ledger.shares_[i][outcome] = shares[i * std::size(kOutcomes) + static_cast<size_t>(outcome)];
    }
  }
  const auto rolled_back = arrays.At("rolled_back").As<int64_t>();
  Require(rolled_back.size() % 3 == 0, "the ledger's 'rolled_back' must have shape [n, 3], got {}",
          ToString(arrays.At("rolled_back").shape()));
  for (size_t i = 0; i < rolled_back.size(); i += 3) {
    ledger.RollBack(rolled_back[i], rolled_back[i + 1], rolled_back[i + 2]);
  }
  return ledger;
}

}  // namespace lopt
