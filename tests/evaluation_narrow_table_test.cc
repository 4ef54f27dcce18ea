#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lopt/evaluation/narrow_table.h"
#include "lopt/evaluation/summary.h"
#include "tests/text_parts.h"

namespace lopt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Estimate About(double value) {
  return {.value = value, .interval = {.low = 0.9 * value, .high = 1.1 * value}};
}

SummaryRow LearnedRow(const std::string& task, const std::string& optimizer, double loss) {
  return {
      .task = task, .optimizer = optimizer, .steps = 300, .seeds = 16, .test_loss = About(loss)};
}

SummaryRow BaselineRow(const std::string& task, const std::string& optimizer, double loss,
                       bool best = false) {
  SummaryRow row = LearnedRow(task, optimizer, loss);
  row.learning_rate = 0.1;
  row.best_baseline = best;
  return row;
}

// Of an optimizer against the best baselines.
AggregateRow AgainstBest(const std::string& optimizer, int64_t compared, Estimate ratio,
                         int64_t better = 0, int64_t worse = 0, int64_t unclear = 0) {
  return {.optimizer = optimizer,
          .best_ratio = ratio,
          .best_compared = compared,
          .best_better = better,
          .best_worse = worse,
          .best_unclear = unclear};
}

// mlp below Adam-cosine, the best baseline, on 5 of 8 tasks.
Summary EightTasks() {
  Summary summary;
  for (int task = 0; task < 8; ++task) {
    const std::string name = "task-" + std::to_string(task);
    summary.rows.push_back(BaselineRow(name, "SGD", 2));
    summary.rows.push_back(BaselineRow(name, "Adam-cosine", 1, true));
    summary.rows.push_back(LearnedRow(name, "mlp", task < 5 ? 0.8 : 1.1));
  }
  summary.rows.back().diverged = 3;
  summary.aggregate = {
      AgainstBest("SGD", 8, {2, {1.9, 2.1}}, 0, 8, 0),
      AgainstBest("Adam-cosine", 8, {1, {1, 1}}),
      AgainstBest("mlp", 8, {0.91, {0.84, 0.98}}, 3, 2, 3),
  };
  return summary;
}

// mlp and two baselines on one task, the better of which is Adam-cosine.
Summary OneTask(double loss, int64_t better, int64_t worse, int64_t unclear) {
  return {.rows = {BaselineRow("digits", "SGD", 2), BaselineRow("digits", "Adam-cosine", 1, true),
                   LearnedRow("digits", "mlp", loss)},
          .aggregate = {
              AgainstBest("SGD", 1, {2, {1.9, 2.1}}, 0, 1, 0),
              AgainstBest("Adam-cosine", 1, {1, {1, 1}}),
              AgainstBest("mlp", 1, {loss, {loss - 0.05, loss + 0.05}}, better, worse, unclear)}};
}

Summary WithSeeds(Summary summary, int64_t seeds) {
  for (SummaryRow& row : summary.rows) row.seeds = seeds;
  for (AggregateRow& row : summary.aggregate) {
    row.best_better = row.best_worse = row.best_unclear = 0;
  }
  return summary;
}

// The width of the widest line, in code points.
size_t WidthOf(const std::string& text) {
  size_t widest = 0;
  size_t width = 0;
  for (const char c : text) {
    width = c == '\n' ? 0 : width + ((c & 0xC0) != 0x80 ? 1 : 0);
    widest = std::max(widest, width);
  }
  return widest;
}

// The row of an optimizer with one space between its cells.
std::string RowIn(const std::string& table, const std::string& optimizer) {
  const size_t first = table.find(" " + optimizer + " ") - 1;
  std::string row;
  for (const char c : table.substr(first, table.find('\n', first) - first)) {
    if (c != ' ' || !row.ends_with(' ')) row += c;
  }
  return row;
}

TEST_CASE("Of several tasks there are the means, the best first, and counts beyond chance") {
  CHECK_EQ(NarrowTable(EightTasks(), 80),
           R"(Test losses as fractions of the best tuned baseline's, geometric means over 8
tasks, 16 seeds:

  optimizer     mean   95 % interval  tasks  better  worse  diverged
> mlp          0.910  0.840 to 0.980      8       3      2         3
  Adam-cosine   1.00               -      8       -      -         0
  SGD           2.00    1.90 to 2.10      8       0      8         0

learned optimizers have a >; better, worse: on so many tasks beyond chance
(Holm's correction, 5 %)
)");
  CHECK_EQ(VerdictSentence(EightTasks()),
           "mlp is ahead of the best tuned baseline, Adam-cosine, on 5 of 8 tasks, beyond chance "
           "on 3, and behind on 3, beyond chance on 2; over all of them its test loss is 0.910 "
           "times the best baseline's (geometric mean, 95 % interval 0.840 to 0.980); 3 of its 128 "
           "trainings diverged.");
}

TEST_CASE("Tuned and untuned optimizers have a table each, and the verdict is of both") {
  const auto tuned = [](Summary summary, bool learned) {
    for (SummaryRow& row : summary.rows) row.tuned = learned || row.learning_rate.has_value();
    return summary;
  };
  CHECK_EQ(NarrowTable(tuned(EightTasks(), false), 80),
           R"(Test losses as fractions of the best tuned baseline's, geometric means over 8
tasks, 16 seeds:

Nothing tuned:
  optimizer   mean   95 % interval  tasks  better  worse  diverged
> mlp        0.910  0.840 to 0.980      8       3      2         3

Everything tuned with equal trials:
  optimizer    mean  95 % interval  tasks  better  worse  diverged
  Adam-cosine  1.00              -      8       -      -         0
  SGD          2.00   1.90 to 2.10      8       0      8         0

learned optimizers have a >; better, worse: on so many tasks beyond chance
(Holm's correction, 5 %)
)");
  CHECK_EQ(VerdictSentence(tuned(EightTasks(), false)), VerdictSentence(EightTasks()));
  CHECK_EQ(NarrowTable(tuned(EightTasks(), true), 80), NarrowTable(EightTasks(), 80));
  CHECK_LE(WidthOf(NarrowTable(tuned(EightTasks(), false), 30)), 30);
}

TEST_CASE("A mean whose interval holds 1 may be chance, and its ends show on which side they are") {
  Summary summary = EightTasks();
  summary.aggregate[2].best_ratio = {0.97, {0.9, 1.04}};
  CHECK_NE(
      VerdictSentence(summary).find("95 % interval 0.900 to 1.04), which may be chance; 3 of its"),
      std::string::npos);
  summary.aggregate[2].best_ratio = {0.9, {0.8, 0.9996}};
  CHECK_NE(VerdictSentence(summary).find("95 % interval 0.8000 to 0.9996); 3 of its"),
           std::string::npos);
  CHECK_EQ(RowIn(NarrowTable(summary, 80), "mlp"), "> mlp 0.9000 0.8000 to 0.9996 8 3 2 3");
}

TEST_CASE("An optimizer that is behind on most tasks is said to be behind first") {
  Summary summary = EightTasks();
  for (SummaryRow& row : summary.rows) {
    if (row.optimizer == "mlp") row.test_loss = About(1.2);
    row.diverged = 0;
  }
  summary.aggregate[2] = AgainstBest("mlp", 7, {1.2, {1.1, 1.3}}, 0, 0, 8);
  CHECK(NarrowTable(summary, 200)
            .ends_with("; tasks: those in the mean, which needs losses above 0\n"));
  CHECK_EQ(VerdictSentence(summary),
           "mlp is behind the best tuned baseline, Adam-cosine, on 8 of 8 tasks, beyond chance on "
           "none; over 7 of them its test loss is 1.20 times the best baseline's (geometric mean, "
           "95 % interval 1.10 to 1.30).");
}

TEST_CASE("Where tasks have different best baselines none is named") {
  Summary summary = EightTasks();
  summary.rows[0].best_baseline = true;
  summary.rows[1].best_baseline = false;
  summary.rows[0].test_loss = About(0.7);
  CHECK(VerdictSentence(summary).starts_with(
      "mlp is ahead of the best tuned baseline of each task on 4 of 8 tasks, beyond chance on 3, "
      "and behind on 4, beyond chance on 2; "));
}

TEST_CASE("Several numbers of steps are lengths") {
  Summary summary = EightTasks();
  for (size_t row = 0; row < 3; ++row) summary.rows[row].task = "task-1";
  for (size_t row = 0; row < 3; ++row) summary.rows[row].steps = 30;
  CHECK_NE(NarrowTable(summary, 80).find("over 8\ntasks and lengths, 16 seeds:"),
           std::string::npos);
  CHECK_NE(VerdictSentence(summary).find(" on 5 of 8 tasks and lengths, "), std::string::npos);
  summary.rows.resize(6);
  CHECK_NE(VerdictSentence(summary).find(" on 2 of 2 lengths, "), std::string::npos);
}

TEST_CASE("Of one task there are the test losses, the ratio and the verdict") {
  CHECK_EQ(NarrowTable(OneTask(0.8, 1, 0, 0), 80),
           R"(Test losses on digits after 300 steps, interquartile means over 16 seeds:

  optimizer    test loss   95 % interval  ratio  verdict  diverged
> mlp              0.800  0.720 to 0.880  0.800   better         0
  Adam-cosine       1.00   0.900 to 1.10   1.00        -         0
  SGD               2.00    1.80 to 2.20   2.00    worse         0

learned optimizers have a >; ratio, verdict: against Adam-cosine, the best tuned
baseline
)");
  CHECK_EQ(VerdictSentence(OneTask(0.8, 1, 0, 0)),
           "mlp is ahead of the best tuned baseline, Adam-cosine, beyond chance: its test loss is "
           "0.800 times the best baseline's (95 % interval 0.750 to 0.850).");
  CHECK_EQ(VerdictSentence(OneTask(1.5, 0, 1, 0)),
           "mlp is behind the best tuned baseline, Adam-cosine, beyond chance: its test loss is "
           "1.50 times the best baseline's (95 % interval 1.45 to 1.55).");
  CHECK_EQ(VerdictSentence(OneTask(0.98, 0, 0, 1)),
           "mlp is ahead of the best tuned baseline, Adam-cosine, but not beyond chance: its test "
           "loss is 0.980 times the best baseline's (95 % interval 0.930 to 1.03).");
}

TEST_CASE("Too few seeds have neither interval nor verdict, and the sentence says so") {
  CHECK_EQ(NarrowTable(WithSeeds(OneTask(0.8, 1, 0, 0), 1), 80),
           R"(Test losses on digits after 300 steps, 1 seed:

  optimizer    test loss  ratio  diverged
> mlp              0.800  0.800         0
  Adam-cosine       1.00   1.00         0
  SGD               2.00   2.00         0

learned optimizers have a >; ratio: against Adam-cosine, the best tuned baseline
)");
  CHECK_EQ(VerdictSentence(WithSeeds(OneTask(0.8, 1, 0, 0), 1)),
           "mlp is ahead of the best tuned baseline, Adam-cosine: its test loss is 0.800 times the "
           "best baseline's; one seed gives no interval, so this may be chance.");
  Summary several = WithSeeds(EightTasks(), 2);
  several.rows.back().diverged = 0;
  CHECK_EQ(VerdictSentence(several),
           "mlp is ahead of the best tuned baseline, Adam-cosine, on 5 of 8 tasks, and behind on "
           "3; over all of them its test loss is 0.910 times the best baseline's (geometric mean); "
           "2 seeds are too few for an interval, so this may be chance.");
  CHECK_EQ(NarrowTable(several, 80),
           R"(Test losses as fractions of the best tuned baseline's, geometric means over 8
tasks, 2 seeds:

  optimizer     mean  tasks  diverged
> mlp          0.910      8         0
  Adam-cosine   1.00      8         0
  SGD           2.00      8         0

learned optimizers have a >
)");
}

TEST_CASE("Of three to seven seeds there are intervals, and the sentence says why no verdict") {
  CHECK_EQ(NarrowTable(WithSeeds(OneTask(0.8, 1, 0, 0), 7), 80),
           R"(Test losses on digits after 300 steps, interquartile means over 7 seeds:

  optimizer    test loss   95 % interval  ratio  diverged
> mlp              0.800  0.720 to 0.880  0.800         0
  Adam-cosine       1.00   0.900 to 1.10   1.00         0
  SGD               2.00    1.80 to 2.20   2.00         0

learned optimizers have a >; ratio: against Adam-cosine, the best tuned baseline
)");
  CHECK_EQ(VerdictSentence(WithSeeds(OneTask(0.8, 1, 0, 0), 7)),
           "mlp is ahead of the best tuned baseline, Adam-cosine: its test loss is 0.800 times the "
           "best baseline's (95 % interval 0.750 to 0.850); 7 seeds are too few for a verdict, so "
           "this may be chance.");
  Summary several = WithSeeds(EightTasks(), 3);
  several.rows.back().diverged = 0;
  several.aggregate[2].best_ratio = {0.97, {0.9, 1.04}};
  CHECK_EQ(VerdictSentence(several),
           "mlp is ahead of the best tuned baseline, Adam-cosine, on 5 of 8 tasks, and behind on "
           "3; over all of them its test loss is 0.970 times the best baseline's (geometric mean, "
           "95 % interval 0.900 to 1.04); 3 seeds are too few for a verdict, so this may be "
           "chance.");
  CHECK_FALSE(Has(NarrowTable(several, 80), "beyond chance"));
}

TEST_CASE("Where some task has seeds enough the sentence does not say that nothing was tested") {
  Summary summary = EightTasks();
  summary.rows.back().seeds = 1;
  const std::string sentence = VerdictSentence(summary);
  CHECK(Has(sentence, "on 5 of 8 tasks, beyond chance on 3,"));
  CHECK_FALSE(Has(sentence, "may be chance"));
}

TEST_CASE("Equal losses keep the order of the results and are level") {
  Summary summary = OneTask(1, 0, 0, 1);
  const std::string table = NarrowTable(summary, 80);
  CHECK_EQ(RowIn(table, "Adam-cosine"), " Adam-cosine 1.00 0.900 to 1.10 1.00 - 0");
  CHECK_EQ(RowIn(table, "mlp"), "> mlp 1.00 0.900 to 1.10 1.00 unclear 0");
  CHECK_LT(At(table, " Adam-cosine "), At(table, "> mlp "));
  CHECK_EQ(VerdictSentence(summary),
           "mlp is level with the best tuned baseline, Adam-cosine: its test loss is 1.00 times "
           "the best baseline's (95 % interval 0.950 to 1.05).");
  summary = EightTasks();
  for (SummaryRow& row : summary.rows) {
    row.test_loss = About(1);
    row.diverged = 0;
  }
  summary.aggregate[2] = AgainstBest("mlp", 8, {1, {0.9, 1.1}}, 0, 0, 8);
  CHECK_EQ(VerdictSentence(summary),
           "mlp is level with the best tuned baseline, Adam-cosine, on all 8 tasks; over all of "
           "them its test loss is 1.00 times the best baseline's (geometric mean, 95 % interval "
           "0.900 to 1.10), which may be chance.");
}

TEST_CASE("A mean that diverged trainings make infinite comes last and is not said") {
  Summary summary = EightTasks();
  for (SummaryRow& row : summary.rows) {
    if (row.optimizer != "mlp") continue;
    row.test_loss.value = kInfinity;
    row.diverged = 16;
  }
  summary.aggregate[2] = AgainstBest("mlp", 8, {kInfinity, {kInfinity, kInfinity}}, 0, 8, 0);
  const std::string table = NarrowTable(summary, 80);
  CHECK_EQ(RowIn(table, "mlp"), "> mlp inf - 8 0 8 128");
  CHECK_LT(At(table, " SGD "), At(table, "> mlp "));
  CHECK_EQ(VerdictSentence(summary),
           "mlp is behind the best tuned baseline, Adam-cosine, on 8 of 8 tasks, beyond chance on "
           "8; 128 of its 128 trainings diverged.");

  Summary one = OneTask(0.8, 0, 1, 0);
  one.rows[2].test_loss = {kInfinity, {0.5, kInfinity}};
  one.rows[2].diverged = 5;
  one.aggregate[2].best_ratio = {kInfinity, {0.5, kInfinity}};
  CHECK_EQ(RowIn(NarrowTable(one, 80), "mlp"), "> mlp inf 0.500 to inf inf worse 5");
  CHECK_EQ(VerdictSentence(one),
           "mlp is behind the best tuned baseline, Adam-cosine, beyond chance: its test loss is "
           "inf, the best baseline's 1.00; 5 of its 16 trainings diverged.");
}

TEST_CASE("Where no loss is a fraction of the best baseline's there is no mean") {
  Summary summary = EightTasks();
  for (AggregateRow& row : summary.aggregate) {
    row.best_ratio.reset();
    row.best_compared = 0;
  }
  CHECK_EQ(RowIn(NarrowTable(summary, 80), "mlp"), "> mlp - - 0 3 2 3");
  CHECK_EQ(VerdictSentence(summary),
           "mlp is ahead of the best tuned baseline, Adam-cosine, on 5 of 8 tasks, beyond chance "
           "on 3, and behind on 3, beyond chance on 2; 3 of its 128 trainings diverged.");
}

TEST_CASE("The best of several learned optimizers is said to be chosen by the same losses") {
  Summary summary = OneTask(0.8, 1, 0, 0);
  summary.rows.push_back(LearnedRow("digits", "mlp-start", 3));
  summary.aggregate.push_back(AgainstBest("mlp-start", 1, {3, {2, 4}}, 0, 1, 0));
  CHECK(VerdictSentence(summary).starts_with(
      "mlp, by these losses the best of 2 learned optimizers, is ahead of the best tuned "
      "baseline, Adam-cosine, beyond chance: "));
}

TEST_CASE(
    "Without a learned optimizer the sentence has the lowest baseline, and all that share it") {
  Summary summary = EightTasks();
  std::erase_if(summary.rows, [](const SummaryRow& row) { return row.optimizer == "mlp"; });
  CHECK_EQ(VerdictSentence(summary),
           "No learned optimizer is judged here; of 2 baselines Adam-cosine has the lowest test "
           "loss over 8 tasks.");
  CHECK_EQ(NarrowTable(summary, 80).find("learned"), std::string::npos);
  Summary one{.rows = {BaselineRow("digits", "SGD", 1), BaselineRow("digits", "SGDM", 1)}};
  CHECK_EQ(VerdictSentence(WithSeeds(one, 1)),
           "No learned optimizer is judged here; of 2 baselines SGD and SGDM have the lowest test "
           "loss; one seed gives no interval, so this may be chance.");
  one.rows.push_back(BaselineRow("digits", "Lion", 1));
  CHECK_EQ(VerdictSentence(one),
           "No learned optimizer is judged here; of 3 baselines SGD and 2 others have the lowest "
           "test loss.");
  for (SummaryRow& row : one.rows) row.test_loss.value = kInfinity;
  CHECK_EQ(VerdictSentence(one),
           "No learned optimizer is judged here; none of 3 baselines has a finite test loss.");
  CHECK_EQ(VerdictSentence({.rows = {BaselineRow("digits", "SGD", 1)}}),
           "No learned optimizer is judged here; SGD is the only baseline, so there is nothing to "
           "compare it with.");
}

TEST_CASE("Without baselines nothing is tested") {
  CHECK_EQ(VerdictSentence({.rows = {LearnedRow("digits", "mlp", 1)}}),
           "mlp is the only optimizer here, so there is nothing to compare it with.");
  const Summary summary{.rows = {LearnedRow("a", "mlp", 4), LearnedRow("a", "new", 1),
                                 LearnedRow("b", "mlp", 1), LearnedRow("b", "new", 1)}};
  // The roots of 4 and of 1.
  CHECK_EQ(NarrowTable(summary, 80),
           R"(Test losses as multiples of the lowest here, geometric means over 2 tasks, 16
seeds:

  optimizer  mean  tasks  diverged
> new        1.00      2         0
> mlp        2.00      2         0

learned optimizers have a >
)");
  CHECK_EQ(VerdictSentence(summary),
           "Of 2 learned optimizers new has the lowest test loss over 2 tasks; without baselines "
           "no difference is tested.");
}

TEST_CASE("A task whose lowest loss is 0 has no multiples, one that diverged an infinite one") {
  Summary summary{.rows = {LearnedRow("a", "mlp", 2), LearnedRow("a", "fast", 1),
                           LearnedRow("b", "mlp", 1), LearnedRow("b", "fast", 2),
                           LearnedRow("c", "mlp", 4), LearnedRow("c", "fast", 1),
                           LearnedRow("solved", "mlp", 0), LearnedRow("solved", "fast", 0.1)}};
  CHECK_EQ(RowIn(NarrowTable(summary, 80), "fast"), "> fast 1.26 3 0");  // the cube root of 2
  CHECK_EQ(RowIn(NarrowTable(summary, 80), "mlp"), "> mlp 2.00 3 0");
  CHECK(NarrowTable(summary, 200)
            .ends_with("; tasks: those in the mean, which needs losses above 0\n"));
  CHECK_EQ(VerdictSentence(summary),
           "Of 2 learned optimizers fast has the lowest test loss over 4 tasks; without baselines "
           "no difference is tested.");
  summary.rows[0].test_loss = About(kInfinity);
  CHECK_EQ(RowIn(NarrowTable(summary, 80), "fast"), "> fast 1.26 3 0");
  CHECK_EQ(RowIn(NarrowTable(summary, 80), "mlp"), "> mlp inf 3 0");
}

TEST_CASE("Where fewer than two baselines are tuned it is tuned Adam, each task by itself") {
  Summary summary{.rows = {BaselineRow("a", "Adam", 1), LearnedRow("a", "mlp", 0.5),
                           BaselineRow("b", "Adam", 1), LearnedRow("b", "mlp", 2)},
                  .aggregate = {{.optimizer = "Adam", .compared = 2, .test_ratio = {1, {0.9, 1.1}}},
                                {.optimizer = "mlp",
                                 .compared = 2,
                                 .test_ratio = {1.2, {1.1, 1.3}},
                                 .better = 1,
                                 .unclear = 1}}};
  CHECK_EQ(NarrowTable(summary, 80),
           R"(Test losses as fractions of tuned Adam's, interquartile means over 2 tasks, 16
seeds:

  optimizer  mean  95 % interval  tasks  better  worse  diverged
  Adam       1.00  0.900 to 1.10      2       -      -         0
> mlp        1.20   1.10 to 1.30      2       1      0         0

learned optimizers have a >; better, worse: on so many tasks beyond chance (each
by itself, 5 %)
)");
  CHECK_EQ(VerdictSentence(summary),
           "mlp is ahead of tuned Adam on 1 of 2 tasks, beyond chance on 1, and behind on 1, "
           "beyond chance on none (each task by itself); over all of them its test loss is 1.20 "
           "times Adam's (interquartile mean, 95 % interval 1.10 to 1.30).");
  summary.rows.resize(2);
  summary.aggregate[1].unclear = 0;
  CHECK_NE(NarrowTable(summary, 80).find("; ratio, verdict: against tuned Adam\n"),
           std::string::npos);
  CHECK(VerdictSentence(summary).starts_with("mlp is ahead of tuned Adam, beyond chance: its "));
  // The interval is that of pairs, from which the verdict is.
  summary.aggregate[1].test_ratio = {0.5, {0.2, 2}};
  summary.rows[1].test_ratio = {0.5, {0.49, 0.51}};
  CHECK_NE(VerdictSentence(summary).find("(95 % interval 0.490 to 0.510)"), std::string::npos);
}

TEST_CASE("With neither two tuned baselines nor Adam a difference may be chance") {
  Summary summary{.rows = {BaselineRow("a", "SGD", 1), BaselineRow("a", "Lion", 2),
                           LearnedRow("a", "mlp", 0.5)}};
  const std::string end =
      " which may be chance: differences are tested against the best of several tuned baselines "
      "or tuned Adam.";
  CHECK_EQ(VerdictSentence(summary),
           "mlp is ahead of SGD, by these losses the best of 2 baselines," + end);
  summary.rows.insert(
      summary.rows.end(),
      {BaselineRow("b", "SGD", 0.5), BaselineRow("b", "Lion", 1), LearnedRow("b", "mlp", 0.8)});
  CHECK_EQ(VerdictSentence(summary),
           "mlp is ahead of SGD, by these losses the best of 2 baselines, on 1 of 2 tasks and "
           "behind on 1," +
               end);
}

TEST_CASE("Names that are too long lose their middle, and a wide terminal shows them whole") {
  Summary summary = EightTasks();
  std::string name;
  for (int i = 0; i < 20; ++i) name += "th\xC3\xA9ta";
  name += "-tuned";
  for (SummaryRow& row : summary.rows) {
    if (row.optimizer == "mlp") row.optimizer = name;
  }
  summary.aggregate[2].optimizer = name;
  const std::string narrow = NarrowTable(summary, 80);
  CHECK_EQ(WidthOf(narrow), 80);
  CHECK_EQ(RowIn(narrow, "th\xC3\xA9tath\xC3\xA9tat..h\xC3\xA9ta-tuned"),
           "> th\xC3\xA9tath\xC3\xA9tat..h\xC3\xA9ta-tuned 0.910 0.840 to 0.980 8 3 2 3");
  CHECK_NE(NarrowTable(summary, 300).find("\n> " + name + "  0.910 "), std::string::npos);
  // The widest numbers that there are still fit.
  summary.aggregate[2].best_ratio = {1.234e-12, {1.2344e-12, 1.23449e-12}};
  summary.rows.back().diverged = 99999999;
  CHECK_LE(WidthOf(NarrowTable(summary, 80)), 80);
}

TEST_CASE("Control characters in names are shown as text") {
  Summary summary{.rows = {LearnedRow("t\n", "a\x1b[31m", 1), LearnedRow("t\n", "b", 2)}};
  CHECK_EQ(NarrowTable(summary, 80),
           R"(Test losses on t\x0a after 300 steps, interquartile means over 16 seeds:

  optimizer  test loss  95 % interval  diverged
> a\x1b[31m       1.00  0.900 to 1.10         0
> b               2.00   1.80 to 2.20         0

learned optimizers have a >
)");
  CHECK(VerdictSentence(summary).starts_with("Of 2 learned optimizers a\\x1b[31m has "));
}

TEST_CASE("Without results there is no table") {
  CHECK_EQ(NarrowTable({}, 80), "There are no results.\n");
  CHECK_EQ(VerdictSentence({}), "There are no results.");
}

TEST_CASE("A terminal that is too narrow gets fewer columns, and a line says which are left out") {
  for (const int columns : {20, 30, 40, 50, 60, 70, 80, 120}) {
    CAPTURE(columns);
    const std::string table = NarrowTable(EightTasks(), columns);
    CHECK_LE(WidthOf(table), std::max(columns, 22));
    CHECK_NE(table.find("mlp"), std::string::npos);
    CHECK_EQ(table.find("Left out, ") != std::string::npos, columns < 70);
  }
  const std::string narrow = NarrowTable(EightTasks(), 40);
  CHECK_NE(narrow.find("Left out, for lines have"), std::string::npos);
  CHECK_NE(narrow.find("diverged"), std::string::npos);
}

TEST_CASE("A page has the same rows, with ratios to the unit") {
  const OptimizerComparison several = CompareOptimizers(EightTasks());
  CHECK_EQ(several.unit, "the best tuned baseline, Adam-cosine");
  REQUIRE_EQ(several.rows.size(), 3);
  CHECK_EQ(several.rows[0].optimizer, "mlp");
  CHECK(several.rows[0].learned);
  CHECK_EQ(several.rows[0].cells.at(1), "0.840 to 0.980");
  CHECK_EQ(several.rows[0].ratio.value().value, 0.91);
  CHECK_EQ(several.rows[0].ratio.value().interval.high, 0.98);
  CHECK_FALSE(several.rows[2].learned);
  // Of one seed a mean has no interval, whatever the bootstrap makes of it.
  CHECK(
      std::isnan(CompareOptimizers(WithSeeds(EightTasks(), 1)).rows[0].ratio.value().interval.low));

  Summary one = OneTask(0.8, 1, 0, 0);
  one.rows[2].test_ratio = {0.8, {0.7, 0.9}};
  CHECK_EQ(CompareOptimizers(one).rows[0].ratio.value().interval.low, 0.7);
  CHECK_FALSE(CompareOptimizers(one).rows[1].ratio.has_value());
  CHECK(CompareOptimizers({}).rows.empty());
}

}  // namespace
}  // namespace lopt
