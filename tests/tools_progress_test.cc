#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "lopt/tools/eval_progress.h"
#include "lopt/tools/progress.h"
#include "lopt/tools/progress_line.h"

namespace lopt {

namespace {

// What the reporter writes for updates 1, 2, ..., one each second with 1,000 inner steps and losses
// {first, NaN} that start at 10 and fall by 1.
std::string Report(int columns, int updates) {
  std::FILE* stream = std::tmpfile();
  REQUIRE(stream != nullptr);
  ProgressReporter reporter(stream, columns);
  const std::vector<std::string> names = {"0_Bowl", "1_Net"};
  for (int update = 1; update <= updates; ++update) {
    UpdateSummary summary;
    summary.estimators.resize(2);
    summary.estimators[0].mean_loss = 11 - update;
    summary.estimators[1].mean_loss = std::nan("");
    reporter.Step({.updates = 100 + update,
                   .first_updates = 100,
                   .meta_steps = 4000,
                   .seconds = static_cast<double>(update),
                   .inner_steps = 1000 * update,
                   .summary = &summary,
                   .estimator_names = &names});
  }
  reporter.Finish();
  std::rewind(stream);
  char buffer[65536];
  const std::string text(buffer, std::fread(buffer, 1, sizeof buffer, stream));
  std::fclose(stream);
  return text;
}

// What the reporter of evaluations writes for a task of two stages, a second for each tenth of
// the work.
std::string ReportEvaluation(int columns) {
  std::FILE* stream = std::tmpfile();
  REQUIRE(stream != nullptr);
  EvaluationReporter reporter(stream, columns);
  EvaluationProgress progress{
      .task = "bowl", .stage = "tuning 8 baselines", .task_number = 2, .tasks = 3};
  reporter.Step(progress);
  for (int tenth = 1; tenth <= 9; ++tenth) {
    progress.seconds = tenth;
    progress.inner_steps = 5000 * tenth;
    progress.done = tenth / 10.0;
    if (tenth == 8) progress.stage = "training 9 optimizers";
    reporter.Step(progress);
  }
  reporter.Finish();
  std::rewind(stream);
  char buffer[65536];
  const std::string text(buffer, std::fread(buffer, 1, sizeof buffer, stream));
  std::fclose(stream);
  return text;
}

}  // namespace

TEST_CASE("Without a terminal an evaluation has a line at every stage and every five seconds") {
  CHECK_EQ(ReportEvaluation(0),
           "2/3 bowl: tuning 8 baselines\n"
           "2/3 bowl: tuning 8 baselines  5,000 inner steps/s  0:05 left\n"
           "2/3 bowl: training 9 optimizers  5,000 inner steps/s  0:02 left\n");
}

TEST_CASE("On a terminal an evaluation rewrites one line in place, cut to the width") {
  const std::string text = ReportEvaluation(24);
  CHECK_EQ(text.substr(0, 27), "\r2/3 bowl: tuning 8 base\x1b[K");
  CHECK_EQ(std::count(text.begin(), text.end(), '\r'), 10);
  CHECK_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  CHECK_EQ(text.back(), '\n');
}

TEST_CASE("Without a terminal a line follows the first update, every five seconds and the end") {
  CHECK_EQ(
      Report(0, 8),
      "101/4000  1 updates/s  1,000 inner steps/s  1:04:59 left  mean loss: 0_Bowl 10 1_Net -\n"
      "106/4000  1 updates/s  1,000 inner steps/s  1:04:54 left  mean loss: 0_Bowl 7 1_Net -\n"
      "108/4000  1 updates/s  1,000 inner steps/s  1:04:52 left  mean loss: 0_Bowl 5 1_Net -\n");
}

TEST_CASE("On a terminal one line is rewritten in place and cut to the width") {
  CHECK_EQ(Report(30, 2),
           "\r101/4000  1 updates/s  1,000 \x1b[K\r102/4000  1 updates/s  1,000 \x1b[K\n");
}

TEST_CASE("A run without updates reports nothing") { CHECK_EQ(Report(80, 0), ""); }

TEST_CASE("Durations, counts and rates are grouped as people write them") {
  CHECK_EQ(FormatDuration(0), "0:00");
  CHECK_EQ(FormatDuration(61.2), "1:02");
  CHECK_EQ(FormatDuration(11229), "3:07:09");
  CHECK_EQ(FormatCount(0), "0");
  CHECK_EQ(FormatCount(999.6), "1,000");
  CHECK_EQ(FormatCount(1234567), "1,234,567");
  CHECK_EQ(FormatRate(64.62), "64.6");
  CHECK_EQ(FormatRate(999.4), "999");
  CHECK_EQ(FormatRate(1350.4), "1,350");
}

}  // namespace lopt
