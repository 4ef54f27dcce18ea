#include "lopt/tools/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace lopt {

namespace {

constexpr double kAveragedSeconds = 5;
constexpr double kHistorySeconds = 0.1;  // between two entries of the history

}  // namespace

ProgressReporter::ProgressReporter(std::FILE* stream, int columns) : output_(stream, columns) {}

void ProgressReporter::Step(const MetaTrainProgress& progress) {
  const auto& estimators = progress.summary->estimators;
  if (history_.empty()) {
    estimator_names_ = *progress.estimator_names;
    now_.loss_sums.resize(estimators.size());
    now_.loss_counts.resize(estimators.size());
    history_.push_back(now_);
  }
  now_.seconds = progress.seconds;
  now_.updates = progress.updates - progress.first_updates;
  now_.inner_steps = progress.inner_steps;
  for (size_t e = 0; e < estimators.size(); ++e) {
    if (std::isnan(estimators[e].mean_loss)) continue;
    now_.loss_sums[e] += estimators[e].mean_loss;
    ++now_.loss_counts[e];
  }
  updates_ = progress.updates;
  meta_steps_ = progress.meta_steps;

  while (history_.size() > 1 && history_[1].seconds <= now_.seconds - kAveragedSeconds) {
    history_.pop_front();
  }
  if (output_.IsDue(now_.seconds)) Print();

  if (now_.seconds >= history_.back().seconds + kHistorySeconds) history_.push_back(now_);
}

void ProgressReporter::Finish() {
  if (printed_updates_ >= 0 && printed_updates_ != updates_) Print();
  output_.End();
}

void ProgressReporter::Print() {
  output_.Print(Line(), now_.seconds);
  printed_updates_ = updates_;
}

std::string ProgressReporter::Line() const {
  const Totals& then = history_.front();
  const double seconds = std::max(now_.seconds - then.seconds, 1e-9);
  const double updates_per_second = static_cast<double>(now_.updates - then.updates) / seconds;
  const double steps_per_second =
      static_cast<double>(now_.inner_steps - then.inner_steps) / seconds;
  const int64_t left = meta_steps_ - updates_;
  std::string line =
      fmt::format("{}/{}  {} updates/s  {} inner steps/s  {} left  mean loss:", updates_,
                  meta_steps_, FormatRate(updates_per_second), FormatCount(steps_per_second),
                  FormatDuration(static_cast<double>(left) / updates_per_second));
  for (size_t e = 0; e < estimator_names_.size(); ++e) {
    const int64_t count = now_.loss_counts[e] - then.loss_counts[e];
    line += fmt::format(" {} ", estimator_names_[e]);
    line += count == 0 ? "-"
                       : fmt::format("{:.4g}", (now_.loss_sums[e] - then.loss_sums[e]) /
                                                   static_cast<double>(count));
  }
  return line;
}

}  // namespace lopt
