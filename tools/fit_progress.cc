#include "lopt/tools/fit_progress.h"

#include <fmt/core.h>

#include "lopt/base/utf8.h"

namespace lopt {

namespace {

// Where a terminal is too narrow for the bar it is left out, then the end of the phase.
std::string FitLine(const FitProgress& progress, const ProgressLine& output) {
  constexpr int kBar = 20;
  const int full = static_cast<int>(progress.done * kBar);
  const std::string left =
      progress.seconds_left ? fmt::format("  {} left", FormatDuration(*progress.seconds_left)) : "";
  std::string line =
      fmt::format("{:<26}  [{}{}] {:>3.0f} %{}", progress.phase, std::string(full, '='),
                  std::string(kBar - full, ' '), 100 * progress.done, left);
  if (output.Fits(line)) return line;
  const std::string end = fmt::format("  {:.0f} %{}", 100 * progress.done, left);
  if (output.Fits(progress.phase + end) || output.Width() <= end.size()) {
    return progress.phase + end;
  }
  return FirstColumns(progress.phase, output.Width() - end.size() - 1) + end;
}

}  // namespace

void FitReporter::Step(const FitProgress& progress) {
  const double seconds = SecondsBetween(start_, SteadyClock::now());
  if (progress.phase == phase_ && !output_.IsDue(seconds)) return;
  phase_ = progress.phase;
  output_.Print(FitLine(progress, output_), seconds);
}

}  // namespace lopt
