#include "lopt/learner/run/update_metrics.h"

#include <fmt/format.h>

#include <string_view>

namespace lopt {
std::string OutcomeMetric(Outcome outcome) {
  return std::string(NameOf("outcome", outcome, kOutcomes)) + "_steps";
}

Metrics MetricsOf(const UpdateSummary& summary, const std::vector<std::string>& estimator_names,
                  const LearnerState& learner, const std::vector<StepCounts>& totals) {
  Metrics metrics = {{"meta_loss", summary.mean_loss},
                     {"gradient_norm", summary.gradient_norm},
                     {"learning_rate", summary.learning_rate},
                     {"skipped_updates", static_cast<double>(learner.skipped_updates)}};
  const std::vector<double> norms = RunningNorms(learner.norms);
  for (size_t e = 0; e < estimator_names.size(); ++e) {
    const EstimatorReport& report = summary.estimators[e];
    const auto set = [&](std::string_view name, double value) {
      metrics[fmt::format("{}/{}", name, estimator_names[e])] = value;
    };
    set("meta_loss", report.mean_loss);
    set("gradient_norm", report.gradient_norm);
    if (!norms.empty()) set("running_norm", norms[e]);
    set("inner_steps", static_cast<double>(totals[e].inner_steps));
    set("non_finite", static_cast<double>(totals[e].non_finite));
    set("episodes_ended", static_cast<double>(totals[e].episodes_ended));
    for (const auto& [diagnostic, value] : report.metrics) {
      set(MetricName(diagnostic), value);
    }
  }
  return metrics;
}

void AddLedgerMetrics(const Ledger& ledger, const std::vector<std::string>& estimator_names,
                      int64_t most_workers, Metrics* metrics) {
  const StepShares all = ledger.Total();
  const auto add = [&](const StepShares& shares, const std::string& of) {
    for (const auto& [outcome, outcome_name] : kOutcomes) {
      if (all[outcome] > 0 || outcome == Outcome::kUsed) {
        (*metrics)[fmt::format("{}/{}", OutcomeMetric(outcome), of)] =
            static_cast<double>(shares[outcome]);
      }
    }
  };
  for (int64_t e = 0; e < ledger.estimators(); ++e) {
    const StepShares shares = ledger.OfEstimator(e);
    const std::string& name = estimator_names[static_cast<size_t>(e)];
    add(shares, name);
    if (all[Outcome::kStale] + all[Outcome::kLate] > 0) {
      const int64_t accepted = shares[Outcome::kUsed] + shares[Outcome::kNonFinite];
      (*metrics)[fmt::format("acceptance/{}", name)] =
          static_cast<double>(accepted) /
          static_cast<double>(accepted + shares[Outcome::kStale] + shares[Outcome::kLate]);
    }
  }
  if (ledger.workers() > 1 && ledger.workers() <= most_workers) {
    for (int64_t w = 0; w < ledger.workers(); ++w) {
      add(ledger.OfWorker(w), fmt::format("worker_{}", w));
    }
  }
}

}  // namespace lopt
