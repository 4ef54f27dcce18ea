#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lopt/evaluation/summary.h"
#include "lopt/evaluation/summary_text.h"
#include "lopt/evaluation/tables.h"
#include "tests/error_of.h"
#include "tests/text_parts.h"

namespace lopt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Estimate Around(double value, double low, double high) {
  return {.value = value, .interval = {.low = low, .high = high}};
}

SummaryRow Adam(const std::string& task, int64_t steps) {
  return {.task = task,
          .optimizer = "Adam",
          .steps = steps,
          .seeds = 16,
          .train_loss = Around(0.4, 0.39, 0.41),
          .test_loss = Around(0.5, 0.49, 0.51),
          .mean_train_loss = Around(1.25, 1.2, 1.3),
          .train_accuracy = Around(.9, .8, 1),
          .test_accuracy = Around(.875, .85, .9),
          .learning_rate = 1,
          .tuned = true,
          .at_edge = true,
          .seconds = 0.25,
          .steps_to_adam = 299,
          .seconds_to_adam = 0.249,
          .speedup = 300.0 / 299,
          .seconds_speedup = 1.25};
}

SummaryRow Learned(const std::string& task, int64_t steps, Verdict verdict) {
  return {.task = task,
          .optimizer = "my|theta",
          .steps = steps,
          .seeds = 16,
          .diverged = 2,
          .blown_up = 3,
          .train_loss = Around(0.326, 0.321, kInfinity),
          .test_loss = Around(0.6, 0.55, 0.65),
          .mean_train_loss = Around(kInfinity, 1, kInfinity),
          .train_accuracy = Around(.9, .8, 1),
          .test_accuracy = Around(.9, .89, .91),
          .seconds = 0.5,
          .steps_to_adam = 120,
          .seconds_to_adam = 0.2,
          .speedup = 2.5,
          .seconds_speedup = 1.5,
          .train_verdict = Verdict::kUnclear,
          .test_verdict = verdict};
}

Summary SomeSummary() {
  return {.rows = {Adam("image", 300), Learned("image", 300, Verdict::kWorse), Adam("image", 30),
                   Learned("image", 30, Verdict::kBetter), Adam("quad", 300),
                   Learned("quad", 300, Verdict::kWorse)},
          .aggregate = {{.optimizer = "Adam",
                         .compared = 3,
                         .train_ratio = Around(1, .98, 1.02),
                         .test_ratio = Around(1, .98, 1.02)},
                        {.optimizer = "my|theta",
                         .compared = 3,
                         .diverged = 6,
                         .blown_up = 9,
                         .train_ratio = Around(0.815, 0.8, kInfinity),
                         .test_ratio = Around(1.2, 1.1, 1.3),
                         .better = 1,
                         .worse = 2}}};
}

// The part of the text from `start` up to the next empty line.
std::string Paragraph(const std::string& text, const std::string& start) {
  const size_t first = text.find(start);
  REQUIRE(first != std::string::npos);
  return text.substr(first, text.find("\n\n", first) + 1 - first);
}

TEST_CASE("a task's table is aligned, bold where best, and says verdicts, edges and divergence") {
  const std::string text = MarkdownTable(SomeSummary());
  CHECK(text.find("## image, 300 steps (16 seeds)\n\n| optimizer ") != std::string::npos);
  CHECK(
      Paragraph(text.substr(text.find("## image, 300")), "| optimizer") ==
      R"(| optimizer |                test loss |             train loss | test / train vs. Adam |     test accuracy (%) |       mean train loss | steps to Adam's loss | speed-up in steps | seconds to it | speed-up in seconds | learning rate | seconds | diverged | blown up |
|:----------|-------------------------:|-----------------------:|----------------------:|----------------------:|----------------------:|---------------------:|------------------:|--------------:|--------------------:|--------------:|--------:|---------:|---------:|
| Adam      | **0.500** [0.490, 0.510] |   0.400 [0.390, 0.410] |                     - |     87.5 [85.0, 90.0] | **1.25** [1.20, 1.30] |                  299 |              1.00 |         0.249 |                1.25 |            1* |   0.250 |        0 |        0 |
| my\|theta |     0.600 [0.550, 0.650] | **0.326** [0.321, inf] |       worse / unclear | **90.0** [89.0, 91.0] |       inf [1.00, inf] |                  120 |              2.50 |         0.200 |                1.50 |             - |   0.500 |  2 of 16 |  3 of 16 |
)");
}

TEST_CASE("the defeats are said in sentences by task, with the steps where there are several") {
  const std::string text = MarkdownTable(SomeSummary());
  CHECK(Paragraph(text, "- my") ==
        "- my\\|theta\n"
        "  - Test loss: better than Adam on 1 of 3, worse on 2 (image at 300 steps, quad), unclear "
        "on 0; the lowest of all optimizers on 0 of 3.\n"
        "  - Train loss: better than Adam on 0 of 3, worse on 0, unclear on 3; the lowest of all "
        "optimizers on 3 of 3.\n");
  CHECK(text.find("- Adam\n") == std::string::npos);
}

TEST_CASE("all lines of a table are of one width, also with names that are not ASCII") {
  Summary summary = SomeSummary();
  for (SummaryRow& row : summary.rows) {
    if (row.optimizer != "Adam") row.optimizer = std::string("th\xC3\xA9ta-of-a-long-name");
  }
  summary.aggregate[1].optimizer = std::string("th\xC3\xA9ta-of-a-long-name");
  const std::string text = MarkdownTable(summary);
  int64_t tables = 0;
  size_t width = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = text.find('\n', start);
    const std::string line = text.substr(start, end - start);
    start = end + 1;
    if (!line.starts_with("|")) {
      width = 0;
      continue;
    }
    size_t points = 0;
    for (const char c : line) points += (c & 0xC0) != 0x80 ? 1 : 0;
    if (width == 0) {
      width = points;
      ++tables;
    }
    CHECK(points == width);
  }
  CHECK(tables == 4 + 2);  // of what is tuned and what is not
}

TEST_CASE("the table of all tasks has the ratios and counts, and says what was left out") {
  Summary summary = SomeSummary();
  const std::string text = MarkdownTable(summary);
  const std::string all = text.substr(text.find("## All tasks (3)\n\n") + 18);
  CHECK(
      Paragraph(all, "| optimizer") ==
      R"(| optimizer |     test loss / Adam's |    train loss / Adam's | better | worse | unclear | diverged | blown up |
|:----------|-----------------------:|-----------------------:|-------:|------:|--------:|---------:|---------:|
| Adam      | **1.00** [0.980, 1.02] |     1.00 [0.980, 1.02] |      - |     - |       - |        0 |        0 |
| my\|theta |      1.20 [1.10, 1.30] | **0.815** [0.800, inf] |      1 |     2 |       0 |        6 |        9 |
)");
  CHECK(text.find("there are no fractions") == std::string::npos);
  summary.aggregate[1].left_out = 2;
  CHECK(MarkdownTable(summary).find(
            "Where Adam's loss is not a positive number (2 of 3) there are no fractions.") !=
        std::string::npos);
}

TEST_CASE("names have no meaning in Markdown") {
  CHECK(MarkdownName("[a](b)") == "\\[a\\](b)");
  CHECK(MarkdownName("__a_b__") == "\\_\\_a_b\\_\\_");
  CHECK(MarkdownName("a\rb\nc") == "a b c");
  CHECK(MarkdownName("a\x1b]0;b\x07") == "a \\]0;b ");
  CHECK(MarkdownName("a\xc2\x9b[2J\xff") == "a\\xc2\\x9b\\[2J\\xff");
  CHECK(MarkdownName("horizon-30") == "horizon-30");
}

TEST_CASE("a table says what its losses are, of tasks without data too") {
  CHECK(LossesNote().find("the last 10 batch losses") != std::string::npos);
  CHECK(LossesNote().find("without a data set") != std::string::npos);
  CHECK(MarkdownTable(SomeSummary()).find(LossesNote()) != std::string::npos);
}

TEST_CASE("the footnote on learning rates at the edge is there if one is") {
  Summary summary = SomeSummary();
  CHECK(MarkdownTable(summary).find("(3 of 6 rows)") != std::string::npos);
  for (SummaryRow& row : summary.rows) row.at_edge = false;
  CHECK(MarkdownTable(summary).find("with *") == std::string::npos);
  CHECK(MarkdownTable(summary).find("1*") == std::string::npos);
}

TEST_CASE("a tuned step multiplier stands where baselines have their learning rate") {
  Summary summary = SomeSummary();
  CHECK(MarkdownTable(summary).find("steps x") == std::string::npos);
  SummaryRow row = Learned("quad", 300, Verdict::kNone);
  row.step_multiplier = 0.5;
  CHECK(MarkdownTable({.rows = {row}}).find(" steps x 0.5 |") != std::string::npos);
  row.at_edge = true;
  CHECK(MarkdownTable({.rows = {row}}).find(" steps x 0.5* |") != std::string::npos);
  CHECK(MarkdownTable({.rows = {row}}).find("it is no baseline.") != std::string::npos);
  CHECK(CsvTable({.rows = {row}}).find(",,0.5,true,0.5,120,") != std::string::npos);
}

TEST_CASE("without Adam there are no comparisons, and without accuracy no such column") {
  SummaryRow row = Learned("quad", 300, Verdict::kNone);
  row.train_verdict = Verdict::kNone;
  row.test_accuracy.reset();
  row.steps_to_adam.reset();
  const std::string text = MarkdownTable({.rows = {row}});
  CHECK(text.find("Adam") == std::string::npos);
  CHECK(text.find("accuracy (%)") == std::string::npos);
  CHECK(text.find("**") == std::string::npos);  // the best of one is none
  CHECK(MarkdownTable({}) == "There are no results.\n");
}

TEST_CASE("numbers have three digits, four where an interval is narrow, and no more") {
  Summary summary{.rows = {Adam("a", 1), Adam("a", 1)}};
  summary.rows[1].optimizer = std::string("b");
  summary.rows[1].test_loss = Around(1234.56, 1000, 1500);
  summary.rows[1].train_loss = Around(1.5e-7, 1e-7, 2e-7);
  summary.rows[1].mean_train_loss = Around(1.23456, 1.2344, 1.2347);
  const std::string text = MarkdownTable(summary);
  CHECK(text.find("1235 [1000, 1500]") != std::string::npos);
  CHECK(text.find("**1.50e-07** [1.00e-07, 2.00e-07]") != std::string::npos);
  CHECK(text.find("**1.235** [1.234, 1.235]") != std::string::npos);
  CHECK(text.find(" 1.250 [1.200, 1.300]") != std::string::npos);  // the same column
}

TEST_CASE("A number takes its digits from what it is rounded to") {
  CHECK_EQ(Rounded(0.9998, 3), "1.00");
  CHECK_EQ(Rounded(0.9994, 3), "0.999");
  CHECK_EQ(Rounded(-9.996, 3), "-10.0");
  CHECK_EQ(Rounded(999.6, 3), "1000");
  CHECK_EQ(Rounded(0.00099996, 3), "0.00100");
  CHECK_EQ(Rounded(999999, 3), "1.00e+06");
  CHECK_EQ(Rounded(0, 3), "0.00");
}

TEST_CASE("Steps from 10,000 on are written out") {
  Summary summary = SomeSummary();
  summary.rows[1].steps_to_adam = 30000;
  summary.rows[3].steps_to_adam = 9999;
  summary.rows[5].steps_to_adam = 12345.5;
  const std::string text = MarkdownTable(summary);
  for (const char* steps : {" 30000 |", " 9999 |", " 12346 |"}) CHECK(Has(text, steps));
  CHECK_FALSE(Has(text, "e+04"));
}

TEST_CASE("Of too few seeds there are no intervals, in text and in the CSV") {
  Summary summary = SomeSummary();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (SummaryRow& row : summary.rows) {
    row.seeds = 2;
    row.test_loss = Around(0.25, nan, nan);
    row.test_accuracy = Around(0.875, nan, nan);
  }
  const std::string text = MarkdownTable(summary);
  CHECK(Has(text, "| **0.250** |"));
  CHECK(Has(text, " **87.5** |"));
  CHECK_FALSE(Has(text, "[-"));
  CHECK_FALSE(Has(text, "nan"));
  CHECK(Has(CsvTable(summary), ",0.25,,,"));
  CHECK_FALSE(Has(CsvTable(summary), "nan"));
}

TEST_CASE("the CSV has every number in full, empty where there is none, and quotes names") {
  Summary summary{.rows = {Learned("a, \"b\"", 300, Verdict::kWorse)}};
  SummaryRow& row = summary.rows[0];
  row.train_loss.value = 1.0 / 3;
  row.test_accuracy.reset();
  row.best_baseline = true;
  row.best_verdict = Verdict::kBetter;
  row.best_p_value = 0.25;
  row.trained_on = true;
  CHECK(CsvTable(summary) ==
        "task,optimizer,steps,seeds,diverged,blown_up,train_loss,train_loss_low,train_loss_high,"
        "test_loss,test_loss_low,test_loss_high,mean_train_loss,mean_train_loss_low,mean_train_"
        "loss_high,"
        "train_accuracy,train_accuracy_low,train_accuracy_high,test_accuracy,test_accuracy_low,"
        "test_accuracy_high,learning_rate,step_multiplier,at_edge,seconds,steps_to_adam,"
        "seconds_to_adam,speedup,seconds_speedup,train_verdict,test_verdict,best_baseline,"
        "best_verdict,best_p_value,trained_on\n"
        "\"a, \"\"b\"\"\",my|theta,300,16,2,3,0.3333333333333333,0.321,inf,0.6,0.55,0.65,inf,1,inf,"
        "0.9,0.8,1,,,,,,,0.5,120,0.2,2.5,1.5,unclear,worse,true,better,0.25,true\n");
  summary.rows[0] = Adam("x", 1);
  CHECK(
      CsvTable(summary).ends_with(",1,,true,0.25,299,0.249,1.0033444816053512,1.25,,,false,,,\n"));
}

TEST_CASE("where there is a best baseline, a column compares with it, and three over all tasks") {
  Summary summary = SomeSummary();
  summary.rows.resize(2);
  summary.rows[0].best_baseline = true;
  summary.rows[1].best_verdict = Verdict::kUnclear;
  summary.aggregate[1].best_ratio = Around(1.25, 1.2, 1.3);
  summary.aggregate[1].best_better = 4;
  summary.aggregate[1].best_worse = 5;
  summary.aggregate[1].best_unclear = 6;
  const std::string text = MarkdownTable(summary);
  CHECK(text.find("| test / train vs. Adam | test vs. best baseline |") != std::string::npos);
  CHECK(text.find("|                     - |               the best |") != std::string::npos);
  CHECK(text.find("|       worse / unclear |                unclear |") != std::string::npos);
  CHECK(
      text.find("| test loss / best baseline's | better than it | worse than it | unclear against "
                "it |") != std::string::npos);
  CHECK(
      text.find("|           1.25 [1.20, 1.30] |              4 |             5 |                  "
                "6 |") != std::string::npos);
  CHECK(text.find("Holm's correction") != std::string::npos);
  CHECK(
      text.find("  - Test loss against the best baseline of each task: better on 4 of 15, worse on "
                "5, unclear on 6; geometric mean of the fractions 1.25 [1.20, 1.30].\n") !=
      std::string::npos);
  CHECK(MarkdownTable(SomeSummary()).find("best baseline") == std::string::npos);
  // Without Adam the table of all tasks has the rest.
  for (SummaryRow& row : summary.rows) {
    if (row.optimizer == kReferenceBaseline) row.optimizer = "SGD";
  }
  for (AggregateRow& row : summary.aggregate) {
    if (row.optimizer == kReferenceBaseline) row.optimizer = "SGD";
  }
  const std::string without = MarkdownTable(summary);
  CHECK(without.find("## All tasks") != std::string::npos);
  CHECK(without.find("/ Adam's") == std::string::npos);
  CHECK(without.find("1.25 [1.20, 1.30]") != std::string::npos);
  CHECK(without.find("better on 4 of 15") != std::string::npos);
}

// Whether every line is at most 80 characters wide.
void CheckNarrow(const std::string& text) {
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    CAPTURE(text.substr(start, end - start));
    CHECK(end - start <= 80);
    start = end + 1;
  }
}

TEST_CASE("What is not tuned and what is have their tables over all tasks, 80 columns wide") {
  Summary summary = SomeSummary();
  summary.rows[1].trained_on = true;
  AggregateRow& adam = summary.aggregate[0];
  adam.best_ratio = Around(1.5, 1, 2);
  adam.speedup = 1.0;
  AggregateRow& mine = summary.aggregate[1];
  mine.best_ratio = Around(0.9, 0.8, 1);
  mine.best_ratio_trained = {.count = 1, .estimate = Around(0.5, 0.4, 0.6)};
  mine.best_ratio_transfer = {.count = 2, .estimate = Around(1.2, 1.1, 1.3)};
  mine.speedup = 1.86;
  summary.optimizers = {{.name = "Adam"},
                        {.name = "my|theta"},
                        {.name = "mine-start", .theta = "m.safetensors", .start_seed = 5},
                        {.name = "mine-start-0.3", .start_seed = 5, .step_multiplier = 0.3},
                        {.name = "mine-start-tuned", .tuned = true, .start_seed = 5}};
  const std::string text = NarrowTables(summary);
  CheckNarrow(text);
  CHECK(text.starts_with(R"(## Nothing tuned (3 tasks and lengths)

| optimizer |   all | trained on | transfer | speed-up | failed |
|:----------|------:|-----------:|---------:|---------:|-------:|
| my\|theta | 0.900 |  0.500 (1) | 1.20 (2) |     1.86 |     15 |

## Everything tuned with equal trials (3 tasks and lengths)

| optimizer |  all | trained on | transfer | speed-up | failed |
|:----------|-----:|-----------:|---------:|---------:|-------:|
| Adam      | 1.50 |          - |        - |     1.00 |      0 |
)"));
  CHECK(text.find("mine-start has weights before meta-training, drawn with the seed of\n"
                  "m.safetensors, 5.\n") != std::string::npos);
  CHECK(text.find("mine-start-") == std::string::npos);
  CHECK(text.find("An optimizer with + in") != std::string::npos);
  CHECK(Paragraph(text.substr(text.find("## image, 300 steps (16 seeds)")), "| optimizer") ==
        R"(| optimizer   |            test loss | train loss | vs. Adam |
|:------------|---------------------:|-----------:|---------:|
| Adam        | 0.500 [0.490, 0.510] |      0.400 |        - |
| my\|theta + | 0.600 [0.550, 0.650] |      0.326 |    worse |
)");
  CHECK(MarkdownTable(summary).find(text.substr(0, text.find("## image"))) != std::string::npos);
  CHECK(MarkdownTable(summary).find("| my\\|theta + |") != std::string::npos);
}

TEST_CASE("Profiles are of several tasks, and are of the group alone") {
  Summary summary = SomeSummary();
  summary.rows.resize(2);
  CHECK(NarrowTables(summary).find("Of 100 tasks") == std::string::npos);
  // Of two that are not tuned, each is the best once; what is tuned is better than both.
  Summary two = SomeSummary();
  for (SummaryRow& row : two.rows) row.test_loss.value = row.tuned ? 0.001 : 0.6;
  for (size_t i = 0; i < 9; i += 3) {
    SummaryRow other = two.rows[i + 1];
    other.optimizer = "other";
    other.test_loss.value = i == 0 ? 0.5 : 0.7;
    other.steps_to_adam = 216;  // 1.8 times the others'
    two.rows.insert(two.rows.begin() + static_cast<std::ptrdiff_t>(i) + 2, other);
  }
  const std::string text = NarrowTables(two);
  CHECK(text.find(R"(Of 100 tasks, those on which the test loss is at most so many times the lowest
here:

| optimizer |   1 | 1.02 | 1.05 | 1.1 | 1.25 | 1.5 |   2 |
|:----------|----:|-----:|-----:|----:|-----:|----:|----:|
| my\|theta |  67 |   67 |   67 |  67 |  100 | 100 | 100 |
| other     |  33 |   33 |   33 |  33 |  100 | 100 | 100 |

The same for the steps to tuned Adam's loss, and the fewest here:

| optimizer |   1 | 1.25 | 1.5 |   2 |   3 |   5 |
|:----------|----:|-----:|----:|----:|----:|----:|
| my\|theta | 100 |  100 | 100 | 100 | 100 | 100 |
| other     |   0 |    0 |   0 | 100 | 100 | 100 |
)") != std::string::npos);
}

TEST_CASE("beside the best baselines every defeat is named, clear or not") {
  Summary summary = SomeSummary();
  summary.rows[0].best_baseline = true;  // of 0.5, image at 300 steps
  summary.rows[1].best_verdict = Verdict::kWorse;
  summary.rows[4].best_baseline = true;  // quad
  summary.rows[5].test_loss = Around(0.501, 0.4, 0.7);
  summary.rows[5].best_verdict = Verdict::kUnclear;
  CHECK_EQ(
      Paragraph(TableAgainstBest(summary, "my|theta"), "| task"),
      R"(| task  | steps |            test loss | best baseline |        its test loss | verdict |
|:------|------:|---------------------:|--------------:|---------------------:|--------:|
| image |   300 | 0.600 [0.550, 0.650] |          Adam | 0.500 [0.490, 0.510] |   worse |
| image |    30 | 0.600 [0.550, 0.650] |             - |                    - |       - |
| quad  |   300 | 0.501 [0.400, 0.700] |          Adam | 0.500 [0.490, 0.510] | unclear |
)");
  const auto defeats = [&] {
    const std::string text = TableAgainstBest(summary, "my|theta");
    return text.substr(text.find("### Defeats"));
  };
  CHECK_EQ(defeats(),
           "### Defeats\n\nIts test loss is above the best baseline's on 2 of 2:\n\n"
           "- image, 300 steps: 0.600 [0.550, 0.650], Adam has 0.500 [0.490, 0.510] (worse)\n"
           "- quad, 300 steps: 0.501 [0.400, 0.700], Adam has 0.500 [0.490, 0.510] (unclear)\n"
           "\nThere is no best baseline on 1 of 3, since fewer than two baselines were tuned: "
           "nothing is known of defeats there.\n");
  summary.rows[1].test_loss = Around(std::nan(""), 0, 1);  // no number is no victory
  summary.rows[5].test_loss = Around(kInfinity, 0.1, kInfinity);
  CHECK_NE(defeats().find("on 2 of 2"), std::string::npos);
  summary.rows[1].test_loss = Around(0.5, 0.1, 0.6);
  summary.rows[5].test_loss = Around(0.4, 0.1, 0.6);
  CHECK(
      defeats().starts_with("### Defeats\n\nNone: its test loss is nowhere above the best "
                            "baseline's (2 compared).\n"));
  CHECK_EQ(ErrorOf([&] { TableAgainstBest(summary, "another"); }),
           "the evaluation has no result of another");
}

}  // namespace
}  // namespace lopt
