#include "tools/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace lopt {

namespace {

constexpr double kAveragedSeconds = 5;
constexpr double kHistorySeconds = 0.1;  // between two entries of the history
constexpr double kTerminalSeconds = 0.2;
constexpr double kPlainSeconds = 5;

}  // namespace

int TerminalColumns(std::FILE* stream) {
  winsize size = {};
  if (isatty(fileno(stream)) == 0) return 0;
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string FormatDuration(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  const int64_t hours = whole / 3600;
  const int64_t minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string FormatCount(double count) {
  const std::string digits = fmt::format("{:.0f}", count);
  std::string grouped;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

ProgressReporter::ProgressReporter(std::FILE* stream, int columns)
    : stream_(stream), columns_(columns) {}

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
  const double interval = columns_ > 0 ? kTerminalSeconds : kPlainSeconds;
  if (printed_seconds_ < 0 || now_.seconds >= printed_seconds_ + interval) Print();

  if (now_.seconds >= history_.back().seconds + kHistorySeconds) history_.push_back(now_);
}

void ProgressReporter::Finish() {
  if (printed_seconds_ < 0) return;
  if (printed_updates_ != updates_) Print();
  if (columns_ > 0) fmt::print(stream_, "\n");
}

void ProgressReporter::Print() {
  std::string line = Line();
  if (columns_ > 0) {
    if (line.size() >= static_cast<size_t>(columns_)) {
      line.resize(static_cast<size_t>(columns_) - 1);
    }
    fmt::print(stream_, "\r{}\x1b[K", line);
  } else {
    fmt::print(stream_, "{}\n", line);
  }
  std::fflush(stream_);
  printed_seconds_ = now_.seconds;
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
      fmt::format("{}/{}  {:.3g} updates/s  {} inner steps/s  {} left  loss:", updates_,
                  meta_steps_, updates_per_second, FormatCount(steps_per_second),
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
