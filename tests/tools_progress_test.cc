#include <doctest/doctest.h>
#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "lopt/base/utf8.h"
#include "lopt/tools/eval_progress.h"
#include "lopt/tools/fit_progress.h"
#include "lopt/tools/log_sink.h"
#include "lopt/tools/progress.h"
#include "lopt/tools/progress_line.h"
#include "tests/paths.h"
#include "tests/temp_directory.h"
#include "tests/terminal.h"

namespace lopt {

namespace {

std::FILE* NewStream() {
  std::FILE* const stream = std::tmpfile();
  REQUIRE(stream != nullptr);
  return stream;
}

// What was written to the stream, which is closed.
std::string TakeText(std::FILE* stream) {
  std::rewind(stream);
  char buffer[65536];
  const std::string text(buffer, std::fread(buffer, 1, sizeof buffer, stream));
  std::fclose(stream);
  return text;
}

// What the reporter writes for updates 1, 2, ..., one each second with 1,000 inner steps and losses
// {first, NaN} that start at 10 and fall by 1.
std::string Report(int columns, int updates,
                   const std::vector<std::string>& names = {"0_Bowl", "1_Net"}) {
  std::FILE* const stream = NewStream();
  ProgressReporter reporter(stream, columns);
  for (int update = 1; update <= updates; ++update) {
    UpdateSummary summary;
    summary.estimators.resize(names.size());
    for (auto& estimator : summary.estimators) estimator.mean_loss = std::nan("");
    summary.estimators[0].mean_loss = 11 - update;
    reporter.Step({.updates = 100 + update,
                   .first_updates = 100,
                   .meta_steps = 4000,
                   .seconds = static_cast<double>(update),
                   .inner_steps = 1000 * update,
                   .summary = &summary,
                   .estimator_names = &names});
  }
  reporter.Finish();
  return TakeText(stream);
}

// What the reporter of evaluations writes for a task of two stages, a second for each tenth of
// the work.
std::string ReportEvaluation(int columns) {
  std::FILE* const stream = NewStream();
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
  return TakeText(stream);
}

// The first line that the reporter of fits writes, at 30 % of the work.
std::string ReportFit(int columns, const std::string& phase) {
  std::FILE* const stream = NewStream();
  FitReporter reporter(stream, columns);
  reporter.Step({.phase = phase, .done = 0.3, .seconds_left = 65});
  reporter.Finish();
  return TakeText(stream);
}

// What a progress line and a log between its two texts write to one stream.
std::string ReportWithLog(int columns) {
  std::FILE* const stream = NewStream();
  {
    spdlog::logger log("test", std::make_shared<LogSink>(stream, spdlog::color_mode::never));
    log.set_pattern("%v");
    ProgressLine line(stream, columns);
    log.warn("before");
    line.Print("1/2  a", 0);
    log.warn("between");
    line.Print("2/2  b", 1);
    line.End();
    log.warn("after");
  }
  return TakeText(stream);
}

}  // namespace

TEST_CASE("Log lines stand above the progress line of a terminal, not behind it") {
  CHECK_EQ(ReportWithLog(0), "before\n1/2  a\nbetween\n2/2  b\nafter\n");
  CHECK_EQ(ReportWithLog(80),
           "before\n\r1/2  a\x1b[K"
           "\r\x1b[Kbetween\n\r1/2  a\x1b[K"
           "\r2/2  b\x1b[K\nafter\n");
}

TEST_CASE("An error that ends a run on a terminal begins a line of its own") {
  const TempDirectory scratch;
  const std::string output =
      RunOnTerminal({"/bin/sh", "-c",
                     fmt::format("NO_COLOR=1 TERM=xterm '{}' meta-train --preset smoke "
                                 "--set theta_opt.learning_rate=1e30 --out '{}/run'",
                                 BuildPath("lopt"), scratch.path())},
                    80)
          .output;
  CAPTURE(output);
  CHECK_NE(output.find("\r1/20  "), std::string::npos);
  CHECK_NE(output.find("\x1b[K\r\nlopt: perturbations of std"), std::string::npos);
}

TEST_CASE("Without a terminal an evaluation has a line at every stage and every five seconds") {
  CHECK_EQ(ReportEvaluation(0),
           "2/3 bowl: tuning 8 baselines\n"
           "2/3 bowl: tuning 8 baselines  5,000 inner steps/s  0:05 left\n"
           "2/3 bowl: training 9 optimizers  5,000 inner steps/s  0:02 left\n");
}

TEST_CASE("On a terminal an evaluation rewrites one line in place, and the time left fits") {
  CHECK_NE(ReportEvaluation(50).find("\r2/3 bowl: training 9 optimizers  0:02 left\x1b[K"),
           std::string::npos);
  const std::string text = ReportEvaluation(24);
  CHECK_NE(text.find("\r2/3 bowl: tu  0:09 left\x1b[K"), std::string::npos);
  CHECK_EQ(text.substr(0, 27), "\r2/3 bowl: tuning 8 base\x1b[K");
  CHECK_EQ(std::count(text.begin(), text.end(), '\r'), 10);
  CHECK_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  CHECK_EQ(text.back(), '\n');
}

TEST_CASE("The share and the time left of a fit stay where its bar does not fit") {
  const std::string bar = "judging fitted              [======              ]  30 %  1:05 left";
  CHECK_EQ(ReportFit(0, "judging fitted"), bar + "\n");
  CHECK_EQ(ReportFit(80, "judging fitted"), "\r" + bar + "\x1b[K\n");
  CHECK_EQ(ReportFit(40, "judging fitted"), "\rjudging fitted  30 %  1:05 left\x1b[K\n");
  CHECK_EQ(ReportFit(40, "tuning AdamW-cosine-decay"),
           "\rtuning AdamW-cosine-de  30 %  1:05 left\x1b[K\n");
}

TEST_CASE("A progress line drives no terminal, whatever is named in it") {
  std::FILE* const stream = NewStream();
  ProgressLine line(stream, 0);
  line.Print("1/2  a\x1b[2J\nb\xc2\x9b", 0);
  CHECK_EQ(TakeText(stream), "1/2  a\\x1b[2J\\x0ab\\xc2\\x9b\n");
}

TEST_CASE("Without a terminal a line follows the first update, every five seconds and the end") {
  CHECK_EQ(
      Report(0, 8),
      "101/4000  1 updates/s  1,000 inner steps/s  1:04:59 left  mean loss: 0_Bowl 10 1_Net -\n"
      "106/4000  1 updates/s  1,000 inner steps/s  1:04:54 left  mean loss: 0_Bowl 7 1_Net -\n"
      "108/4000  1 updates/s  1,000 inner steps/s  1:04:52 left  mean loss: 0_Bowl 5 1_Net -\n");
}

TEST_CASE("On a terminal one line is rewritten in place, and what does not fit is left out") {
  const auto first = [](int columns, const std::vector<std::string>& names = {"0_Bowl", "1_Net"}) {
    const std::string text = Report(columns, 1, names);
    REQUIRE(text.starts_with('\r'));
    REQUIRE(text.ends_with("\x1b[K\n"));
    const std::string line = text.substr(1, text.size() - 5);
    CHECK_LT(line.size(), columns);
    return line;
  };
  CHECK_EQ(
      first(120),
      "101/4000  1 updates/s  1,000 inner steps/s  1:04:59 left  mean loss: 0_Bowl 10 1_Net -");
  CHECK_EQ(first(80), "101/4000  1 updates/s  1:04:59 left  mean loss: 0_Bowl 10 1_Net -");
  CHECK_EQ(first(60), "101/4000  1:04:59 left  mean loss: 0_Bowl 10 1_Net -");
  CHECK_EQ(first(48), "101/4000  1:04:59 left  loss: 0_Bowl 10 1_Net -");
  CHECK_EQ(first(45), "101/4000  1:04:59 left  loss: 0_Bo 10 1_Ne -");
  CHECK_EQ(first(20), "101/4000  1:04:59 l");
  // The first two estimators of docs/start.md, and more than fit.
  CHECK_EQ(first(80, {"0_FixedDimQuadraticFamily", "1_ImageMLP"}),
           "101/4000  1:04:59 left  mean loss: 0_FixedDimQuadraticFamily 10 1_ImageMLP -");
  std::vector<std::string> many;
  for (int e = 0; e < 15; ++e) many.push_back(std::to_string(e) + "_ImageMLP");
  CHECK_EQ(first(80, many),
           "101/4000  1:04:59 left  loss: 0_Im 10 1_Im - 2_Im - 3_Im - 4_Im - and 10 more");
  CHECK_EQ(Report(80, 2).substr(66),
           "\x1b[K\r102/4000  1 updates/s  1:04:58 left  mean loss: 0_Bowl 9.5 1_Net -\x1b[K\n");
}

TEST_CASE("Names are cut between two characters, at the columns that they take") {
  CHECK_EQ(Report(38, 1, {"数字の訓練"}), "\r101/4000  1:04:59 left  loss: 数字 10\x1b[K\n");
  CHECK_EQ(Report(39, 1, {"数字の訓練"}), "\r101/4000  1:04:59 left  loss: 数字 10\x1b[K\n");
  CHECK_EQ(Report(40, 1, {"数字の訓練"}), "\r101/4000  1:04:59 left  loss: 数字の 10\x1b[K\n");
  CHECK_EQ(Report(39, 1, {"größe"}), "\r101/4000  1:04:59 left  loss: größe 10\x1b[K\n");
  CHECK_EQ(Report(38, 1, {"größe"}), "\r101/4000  1:04:59 left  loss: größ 10\x1b[K\n");
}

TEST_CASE("A terminal that cannot write a line anew gets lines") {
  const TempDirectory scratch;
  const std::string output =
      RunOnTerminal({"/bin/sh", "-c",
                     fmt::format("TERM=dumb '{}' meta-train --preset smoke --out '{}/run'",
                                 BuildPath("lopt"), scratch.path())},
                    80)
          .output;
  CHECK_EQ(output.find('\x1b'), std::string::npos);
  CHECK_NE(output.find("\r\n20/20  "), std::string::npos);
}

TEST_CASE("On a terminal messages are broken at spaces, and lines to copy stay") {
  const auto lines = [](const std::vector<std::string>& words) {
    std::vector<std::string> all = {BuildPath("lopt")};
    all.insert(all.end(), words.begin(), words.end());
    std::istringstream output(RunOnTerminal(all, 60).output);
    std::vector<std::string> lines;
    for (std::string line; std::getline(output, line);) {
      line.pop_back();
      lines.push_back(line);
    }
    return lines;
  };
  const auto error = lines({"meta-train", "--stpes", "3"});
  CHECK_GT(error.size(), 4);
  for (const std::string& line : error) CHECK_LE(TextWidth(line), 75);  // with the colour
  CHECK_NE((error[0] + " " + error[1]).find("; did you mean '--steps'? The options are --"),
           std::string::npos);
  const auto eval = lines({"eval"});
  CHECK_NE(std::ranges::find(eval,
                             "  to tune 17 baselines: 300 steps x 21 trials x 4 seeds, "
                             "428,400 inner steps"),
           eval.end());
}

TEST_CASE("A terminal that wants colours gets the beginning of a line bold") {
  const auto progress = [](const std::string& variables) {
    const TempDirectory scratch;
    return RunOnTerminal(
               {"/bin/sh", "-c",
                fmt::format("{} '{}' meta-train --preset smoke --threads 1 --out '{}/run'",
                            variables, BuildPath("lopt"), scratch.path())},
               80)
        .output;
  };
  const std::string plain = progress("NO_COLOR=1 TERM=xterm");
  CHECK_NE(plain.find(" on 1 thread, to"), std::string::npos);
  CHECK_EQ(plain.find("\x1b[1m"), std::string::npos);
  CHECK_EQ(plain.find("\x1b[3"), std::string::npos);
  const size_t first = plain.find("\r1/20  ");
  REQUIRE_NE(first, std::string::npos);
  CHECK_NE(plain.substr(first, plain.find("\x1b[K", first) - first).find(" 1_ImageMLP "),
           std::string::npos);
  CHECK_EQ(progress("TERM=dumb").find("\x1b[1m"), std::string::npos);
  CHECK_NE(progress("NO_COLOR= TERM=xterm").find("\r\x1b[1m1/20\x1b[0m  "), std::string::npos);
  const std::string error =
      RunOnTerminal({"/bin/sh", "-c", "NO_COLOR= TERM=xterm '" + BuildPath("lopt") + "' evla"}, 80)
          .output;
  CHECK(error.starts_with("\x1b[1;31mlopt:\x1b[0m There is no command 'evla'"));
}

TEST_CASE("A run without updates reports nothing") { CHECK_EQ(Report(80, 0), ""); }

TEST_CASE("Durations, counts and rates are grouped as people write them") {
  CHECK_EQ(FormatDuration(0), "0:00");
  CHECK_EQ(FormatDuration(61.2), "1:02");
  CHECK_EQ(FormatDuration(11229), "3:07:09");
  CHECK_EQ(Counted(1, "thread"), "1 thread");
  CHECK_EQ(Counted(0, "thread"), "0 threads");
  CHECK_EQ(FormatCount(0), "0");
  CHECK_EQ(FormatCount(999.6), "1,000");
  CHECK_EQ(FormatCount(1234567), "1,234,567");
  CHECK_EQ(FormatRate(64.62), "64.6");
  CHECK_EQ(FormatRate(999.4), "999");
  CHECK_EQ(FormatRate(1350.4), "1,350");
}

}  // namespace lopt
