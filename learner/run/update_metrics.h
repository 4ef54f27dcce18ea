#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lopt/base/metrics.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/run/ledger.h"

namespace lopt {

// The metrics of an update: meta_loss, gradient_norm, learning_rate and, per estimator,
// meta_loss/<index>_<task>, gradient_norm/... and the estimator's own (estimators/diagnostics.h)
// are those of this update, the latter as means over the windows and workers that give them;
// running_norm/<index>_<task>, with equal_norm, is what the estimator's gradient was divided by;
// skipped_updates, inner_steps/..., non_finite/... and episodes_ended/... count from the start of
// the run.
Metrics MetricsOf(const UpdateSummary& summary, const std::vector<std::string>& estimator_names,
                  const LearnerState& learner, const std::vector<StepCounts>& totals);

// The metric that counts inner steps of a outcome: "used_steps".
std::string OutcomeMetric(Outcome outcome);

// Adds what became of all inner steps since the start of the run: <outcome>_steps/<index>_<task>,
// and <outcome>_steps/worker_<w> if there are several workers, but not more than `most_workers`; a
// outcome that no step had is left out, but for used. acceptance/<index>_<task>, where anything was
// refused, is the part of an estimator's steps that came and were not stale or late.
void AddLedgerMetrics(const Ledger& ledger, const std::vector<std::string>& estimator_names,
                      int64_t most_workers, Metrics* metrics);

}  // namespace lopt
