#include "lopt/tools/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "lopt/base/utf8.h"

namespace lopt {

namespace {

constexpr double kAveragedSeconds = 5;
constexpr double kHistorySeconds = 0.1;  // between two entries of the history
constexpr size_t kShortestName = 4;      // of an estimator, in a narrow line

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
  const std::string count = fmt::format("{}/{}", updates_, meta_steps_);
  const std::string left =
      FormatDuration(static_cast<double>(meta_steps_ - updates_) / updates_per_second) + " left";
  const std::string updates = FormatRate(updates_per_second) + " updates/s";
  const std::string steps = FormatCount(steps_per_second) + " inner steps/s";
  size_t longest = 0;
  for (const std::string& name : estimator_names_) longest = std::max(longest, TextWidth(name));
  const std::string losses = "mean loss:" + Losses(estimator_names_.size(), longest);

  for (const std::string& line :
       {fmt::format("{}  {}  {}  {}  {}", count, updates, steps, left, losses),
        fmt::format("{}  {}  {}  {}", count, updates, left, losses),
        fmt::format("{}  {}  {}", count, left, losses)}) {
    if (output_.Fits(line)) return line;
  }
  std::string line;
  for (size_t shown = estimator_names_.size(); shown > 0; --shown) {
    for (size_t size = longest; size >= kShortestName; --size) {
      line = fmt::format("{}  {}  loss:{}", count, left, Losses(shown, size));
      if (output_.Fits(line)) return line;
    }
  }
  return line;
}

std::string ProgressReporter::Losses(size_t estimators, size_t name_size) const {
  const Totals& then = history_.front();
  std::string text;
  for (size_t e = 0; e < estimators; ++e) {
    const int64_t count = now_.loss_counts[e] - then.loss_counts[e];
    const double sum = now_.loss_sums[e] - then.loss_sums[e];
    text += fmt::format(" {} ", FirstColumns(estimator_names_[e], name_size));
    text += count == 0 ? "-" : fmt::format("{:.4g}", sum / static_cast<double>(count));
  }
  const size_t more = estimator_names_.size() - estimators;
  return more == 0 ? text : fmt::format("{} and {} more", text, more);
}

}  // namespace lopt
