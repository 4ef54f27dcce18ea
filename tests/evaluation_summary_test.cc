#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/evaluation/summary.h"

namespace lopt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A training of one step with that train loss, and twice that as the test loss.
RunResult Result(const std::string& task, const std::string& optimizer, int64_t seed, double loss) {
  return {.task = task,
          .optimizer = optimizer,
          .seed = seed,
          .steps = {1},
          .train_loss = {static_cast<float>(loss)},
          .final_train_loss = {loss},
          .final_train_accuracy = {0.5},
          .mean_train_loss = {loss + 1},
          .test_loss = {2 * loss},
          .test_accuracy = {0.25},
          .seconds = {0.5},
          .blew_up = {false}};
}

// Seeds 0, 1, ... with these train losses.
void Add(std::vector<RunResult>* results, const std::string& task, const std::string& optimizer,
         const std::vector<double>& losses) {
  for (size_t s = 0; s < losses.size(); ++s) {
    results->push_back(Result(task, optimizer, static_cast<int64_t>(s), losses[s]));
  }
}

// Of the fewest seeds that have verdicts: from the lowest to 1.07 times that.
std::vector<double> Eight(double lowest) {
  std::vector<double> losses;
  for (int s = 0; s < kVerdictSeeds; ++s) losses.push_back(lowest * (1 + 0.01 * s));
  return losses;
}

const SummaryRow& RowOf(const Summary& summary, std::string_view task, std::string_view optimizer) {
  const auto found = std::ranges::find_if(summary.rows, [&](const SummaryRow& row) {
    return row.task == task && row.optimizer == optimizer;
  });
  REQUIRE(found != summary.rows.end());
  return *found;
}

const AggregateRow& AggregateOf(const Summary& summary, std::string_view optimizer) {
  const auto found = std::ranges::find(summary.aggregate, optimizer, &AggregateRow::optimizer);
  REQUIRE(found != summary.aggregate.end());
  return *found;
}

TEST_CASE("figures are interquartile means over the seeds, whatever their order") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", {4, 1, 3, 100, 2});  // 1 and 100 are left out
  const Summary summary = Summarize(results);
  REQUIRE(summary.rows.size() == 1);
  const SummaryRow& row = summary.rows[0];
  CHECK(row.task == "a");
  CHECK(row.optimizer == "Adam");
  CHECK(row.steps == 1);
  CHECK(row.seeds == 5);
  CHECK(row.diverged == 0);
  CHECK(row.train_loss.value == 3);
  CHECK(row.test_loss.value == 6);
  CHECK(row.mean_train_loss.value == 4);
  CHECK(row.train_accuracy.value().value == .5);
  CHECK(row.test_accuracy.value().value == .25);
  CHECK(row.train_loss.interval.low >= 1);
  CHECK(row.train_loss.interval.low < 3);
  CHECK(row.train_loss.interval.high > 3);
  CHECK(row.train_loss.interval.high <= 100);
  CHECK(row.seconds == .5);
  CHECK(!row.learning_rate.has_value());
  CHECK(!row.steps_to_adam.has_value());
  CHECK(!row.speedup.has_value());

  std::ranges::reverse(results);
  const Summary reversed = Summarize(results);
  CHECK(reversed.rows[0].train_loss.value == row.train_loss.value);
  CHECK(reversed.rows[0].train_loss.interval.low == row.train_loss.interval.low);
  CHECK(reversed.rows[0].train_loss.interval.high == row.train_loss.interval.high);
}

TEST_CASE("verdicts are better or worse where the interval of the difference leaves out 0") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", {1.0, 1.1, 1.2, 1.3, 1.0, 1.1, 1.2, 1.3});
  Add(&results, "a", "lower", {0.7, 0.8, 0.9, 0.95, 0.7, 0.8, 0.9, 0.95});
  Add(&results, "a", "higher", {1.4, 1.5, 1.6, 1.7, 1.4, 1.5, 1.6, 1.7});
  Add(&results, "a", "same", {0.9, 1.0, 1.3, 1.4, 0.9, 1.0, 1.3, 1.4});
  const Summary summary = Summarize(results);
  const std::pair<const char*, Verdict> wanted[] = {{"Adam", Verdict::kNone},
                                                    {"lower", Verdict::kBetter},
                                                    {"higher", Verdict::kWorse},
                                                    {"same", Verdict::kUnclear}};
  for (const auto& pair : wanted) {
    CAPTURE(pair.first);
    CHECK(RowOf(summary, "a", pair.first).train_verdict == pair.second);
    CHECK(RowOf(summary, "a", pair.first).test_verdict == pair.second);
  }
}

TEST_CASE("train and test verdicts are each from their own losses") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", Eight(1));
  Add(&results, "a", "overfits", Eight(0.1));
  for (size_t i = 8; i < 16; ++i) results[i].test_loss = {9};
  const SummaryRow row = RowOf(Summarize(results), "a", "overfits");
  CHECK(row.train_verdict == Verdict::kBetter);
  CHECK(row.test_verdict == Verdict::kWorse);
}

TEST_CASE("there is no verdict without Adam or with fewer than eight seeds") {
  std::vector<RunResult> results;
  const std::vector<double> seven(7, 2), eight(8, 1);
  Add(&results, "no Adam", "x", eight);
  Add(&results, "few of x", "Adam", eight);
  Add(&results, "few of x", "x", seven);
  Add(&results, "few of Adam", "Adam", seven);
  Add(&results, "few of Adam", "x", eight);
  Add(&results, "few of both", "Adam", std::vector<double>(7, 1));
  Add(&results, "few of both", "x", seven);
  const Summary summary = Summarize(results);
  for (const SummaryRow& row : summary.rows) {
    CHECK(row.train_verdict == Verdict::kNone);
    CHECK(row.test_verdict == Verdict::kNone);
  }
}

TEST_CASE("Intervals are of three seeds or more, over all tasks too") {
  std::vector<RunResult> results;
  Add(&results, "two", "Adam", {1, 2});
  Add(&results, "two", "x", {2, 3});
  const Summary two = Summarize(results);
  for (const SummaryRow& row : two.rows) {
    CHECK_FALSE(HasInterval(row.train_loss));
    CHECK_FALSE(HasInterval(row.test_loss));
    CHECK_FALSE(HasInterval(row.mean_train_loss));
    CHECK_FALSE(HasInterval(row.test_accuracy.value()));
  }
  CHECK(AggregateOf(two, "x").test_ratio.value == doctest::Approx(5.0 / 3));
  CHECK_FALSE(HasInterval(AggregateOf(two, "x").test_ratio));
  Add(&results, "three", "Adam", {1, 2, 3});
  Add(&results, "three", "x", {2, 3, 4});
  const Summary both = Summarize(results);
  CHECK(HasInterval(RowOf(both, "three", "x").test_loss));
  CHECK_FALSE(HasInterval(AggregateOf(both, "x").test_ratio));
  const Summary three = Summarize({results.begin() + 4, results.end()});
  CHECK(HasInterval(AggregateOf(three, "x").test_ratio));
}

TEST_CASE("a diverged training counts as infinite and is not dropped") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", {1, 1, 1, 1});
  Add(&results, "a", "once", {0.5, 0.5, 0.5, 0.5});
  Add(&results, "a", "mostly", {0.5, 0.5, 0.5, 0.5});
  results[4].test_loss = {kNan};  // one of "once"
  for (size_t i = 8; i < 11; ++i) {
    results[i].final_train_loss = {kNan};  // its test loss is finite, but the training was not
    results[i].final_train_accuracy = {kNan};
  }
  const Summary summary = Summarize(results);
  const SummaryRow& once = RowOf(summary, "a", "once");
  CHECK(once.seeds == 4);
  CHECK(once.diverged == 1);
  CHECK(once.test_loss.value == 1);  // the infinite one is among the quarter that is cut off
  CHECK(once.test_loss.interval.high == kInfinity);
  CHECK(once.test_accuracy.value().value == .25);
  CHECK(once.test_accuracy.value().interval.low < .25);
  const SummaryRow& mostly = RowOf(summary, "a", "mostly");
  CHECK(mostly.seeds == 4);
  CHECK(mostly.diverged == 3);
  CHECK(mostly.train_loss.value == kInfinity);
  CHECK(mostly.test_loss.value == kInfinity);
  CHECK(mostly.mean_train_loss.value == kInfinity);
  CHECK(mostly.test_accuracy.value().value == 0);
  CHECK(AggregateOf(summary, "mostly").diverged == 3);
  CHECK(AggregateOf(summary, "mostly").test_ratio.value == kInfinity);
}

TEST_CASE("Some diverged trainings leave a verdict unclear where draws of the others are lower") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", std::vector<double>(8, 1));
  Add(&results, "a", "once", {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, kNan});
  Add(&results, "a", "often", {0.5, 0.5, 0.5, 0.5, kNan, kNan, kNan, kNan});
  const Summary summary = Summarize(results);
  CHECK(RowOf(summary, "a", "once").test_loss.value == 1);
  CHECK(RowOf(summary, "a", "once").test_verdict == Verdict::kUnclear);  // 7 % of draws diverge
  CHECK(RowOf(summary, "a", "often").test_loss.value == kInfinity);
  CHECK(RowOf(summary, "a", "often").test_verdict == Verdict::kUnclear);  // 14 % do not
}

TEST_CASE(
    "an optimizer that always diverges is worse than Adam, and any is better than such Adam") {
  std::vector<RunResult> results;
  const std::vector<double> never(8, kNan);
  Add(&results, "a", "Adam", std::vector<double>(8, 1));
  Add(&results, "a", "x", {kNan, kInfinity, kNan, kNan, kInfinity, kNan, kNan, kNan});
  Add(&results, "b", "Adam", never);
  Add(&results, "b", "x", std::vector<double>(8, 5));
  Add(&results, "b", "y", never);
  const Summary summary = Summarize(results);
  CHECK(RowOf(summary, "a", "x").test_verdict == Verdict::kWorse);
  CHECK(RowOf(summary, "b", "x").test_verdict == Verdict::kBetter);
  CHECK(RowOf(summary, "b", "y").test_verdict == Verdict::kUnclear);
  // No loss is a fraction of infinity: b is left out, and said to be.
  CHECK(AggregateOf(summary, "x").compared == 1);
  CHECK(AggregateOf(summary, "x").left_out == 1);
  CHECK(AggregateOf(summary, "x").better == 1);
  CHECK(AggregateOf(summary, "x").worse == 1);
  CHECK(AggregateOf(summary, "y").compared == 0);
  CHECK(std::isnan(AggregateOf(summary, "y").test_ratio.value));
}

TEST_CASE("the aggregate is the interquartile mean of losses as fractions of Adam's") {
  std::vector<RunResult> results;
  const std::vector<double> ones(8, 1);
  Add(&results, "a", "Adam", std::vector<double>(8, 2));
  Add(&results, "a", "x", ones);  // ratio 0.5
  Add(&results, "b", "Adam", {10, 20, 20, 30, 10, 20, 20, 30});
  Add(&results, "b", "x", std::vector<double>(8, 30));  // ratio 1.5
  Add(&results, "c", "Adam", ones);
  Add(&results, "c", "x", ones);
  Add(&results, "zero", "Adam", std::vector<double>(8, 0));
  Add(&results, "zero", "x", ones);
  const Summary summary = Summarize(results);
  REQUIRE(summary.aggregate.size() == 2);
  CHECK(summary.aggregate[0].optimizer == "Adam");
  CHECK(summary.aggregate[0].train_ratio.value == 1);
  CHECK(summary.aggregate[0].better + summary.aggregate[0].worse + summary.aggregate[0].unclear ==
        0);
  const AggregateRow& x = AggregateOf(summary, "x");
  // Of 8 x 0.5, 8 x 1, 8 x 1.5 the middle half is 2 x 0.5, 8 x 1, 2 x 1.5.
  CHECK(x.train_ratio.value == doctest::Approx(1).epsilon(1e-15));
  CHECK(x.test_ratio.value == doctest::Approx(1).epsilon(1e-15));
  // Only Adam's seeds on b differ from one another, and tasks are not resampled.
  CHECK(x.test_ratio.interval.low > 0.5);
  CHECK(x.test_ratio.interval.low < 1);
  CHECK(x.test_ratio.interval.high > 1);
  CHECK(x.test_ratio.interval.high < 1.5);
  CHECK(x.compared == 3);
  CHECK(x.left_out == 1);
  CHECK(x.better == 1);
  CHECK(x.worse == 2);  // on b and on "zero", which counts here
  CHECK(x.unclear == 1);
}

TEST_CASE("the aggregate's bootstrap keeps a seed's numbers after several steps together") {
  // Seeds are 1 or 3 after all of 8 numbers of steps, so together they are as uncertain as one.
  std::vector<RunResult> results;
  for (const std::string optimizer : {"Adam", "x"}) {
    for (int64_t seed = 0; seed < 8; ++seed) {
      RunResult& result = results.emplace_back(Result("a", optimizer, seed, 1));
      const double loss = optimizer == "Adam" || seed % 2 == 0 ? 1 : 3;
      result.steps = {1, 2, 3, 4, 5, 6, 7, 8};
      result.train_loss.assign(8, 1.0f);
      result.final_train_loss.assign(8, loss);
      result.final_train_accuracy.assign(8, .5);
      result.mean_train_loss.assign(8, 1);
      result.test_loss.assign(8, loss);
      result.test_accuracy.assign(8, .5);
      result.seconds.assign(8, 1);
      result.blew_up.assign(8, false);
    }
  }
  const Summary summary = Summarize(results);
  CHECK(summary.rows.size() == 16);
  const SummaryRow& row = RowOf(summary, "a", "x");
  const AggregateRow& x = AggregateOf(summary, "x");
  CHECK(x.test_ratio.value == 2);
  CHECK(x.test_ratio.interval.low == row.test_loss.interval.low);
  CHECK(x.test_ratio.interval.high == row.test_loss.interval.high);
}

TEST_CASE(
    "steps and seconds to Adam's loss are means over seeds, infinite where it is not reached") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", {1, 1, 1});
  Add(&results, "a", "fast", {1, 1, 1});
  Add(&results, "a", "slow", {1, 1, 1});
  for (RunResult& result : results) {
    result.steps = {100};
    result.train_loss.assign(100, 1.0f);
    result.seconds = {2};
    result.learning_rate = {0.1};
    result.at_edge = {result.optimizer == "slow"};
    result.steps_to_adam = {result.optimizer == "Adam"   ? 80
                            : result.optimizer == "fast" ? 30 + 10 * result.seed
                            : result.seed == 2           ? 0
                                                         : 90};
  }
  const Summary summary = Summarize(results);
  CHECK(RowOf(summary, "a", "Adam").steps_to_adam == 80.0);
  const SummaryRow& fast = RowOf(summary, "a", "fast");
  CHECK(fast.steps_to_adam == 40.0);
  CHECK(fast.seconds_to_adam.value() == doctest::Approx(.8).epsilon(1e-15));
  CHECK(fast.speedup == 2.5);
  CHECK(fast.learning_rate == 0.1);
  CHECK(!fast.at_edge);
  const SummaryRow& slow = RowOf(summary, "a", "slow");
  CHECK(slow.steps_to_adam == kInfinity);
  CHECK(slow.seconds_to_adam == kInfinity);
  CHECK(slow.speedup == 0.0);
  // A training of Adam takes 2 seconds.
  CHECK(RowOf(summary, "a", "Adam").seconds_speedup.value() == doctest::Approx(1.25));
  CHECK(fast.seconds_speedup.value() == doctest::Approx(2.5));
  CHECK(slow.seconds_speedup == 0.0);
  CHECK(slow.at_edge);
}

TEST_CASE("Adam's own spread is in the interval of the ratios to it") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", {1, 2, 3, 4, 5, 6, 7, 8});
  Add(&results, "a", "x", {9, 9, 9, 9, 9, 9, 9, 9});
  const Summary summary = Summarize(results);
  const AggregateRow& x = AggregateOf(summary, "x");
  CHECK(x.test_ratio.value == 2);
  // Fractions of what Adam's interval reaches to.
  const Interval adam = RowOf(summary, "a", "Adam").test_loss.interval;
  CHECK(x.test_ratio.interval.low == doctest::Approx(18 / adam.high).epsilon(.1));
  CHECK(x.test_ratio.interval.high == doctest::Approx(18 / adam.low).epsilon(.1));
  // Adam is a fraction of itself.
  CHECK(AggregateOf(summary, "Adam").test_ratio.value == doctest::Approx(1).epsilon(1e-15));
  CHECK(AggregateOf(summary, "Adam").test_ratio.interval.high == doctest::Approx(1).epsilon(1e-15));
}

TEST_CASE("trainings that blew up are counted, and count as what they end with") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", {1, 1, 1});
  Add(&results, "a", "x", {2, 2, 2});
  results[3].blew_up = {true};
  results[5].blew_up = {true};
  const Summary summary = Summarize(results);
  CHECK(RowOf(summary, "a", "x").blown_up == 2);
  CHECK(RowOf(summary, "a", "x").diverged == 0);
  CHECK(RowOf(summary, "a", "x").train_loss.value == 2);
  CHECK(RowOf(summary, "a", "Adam").blown_up == 0);
  CHECK(AggregateOf(summary, "x").blown_up == 2);
}

TEST_CASE("tasks without accuracy have none in the summary") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", {1, 2, 3});
  for (RunResult& result : results) {
    result.final_train_accuracy = {kNan};
    result.test_accuracy = {kNan};
  }
  const Summary summary = Summarize(results);
  CHECK(!summary.rows[0].train_accuracy.has_value());
  CHECK(!summary.rows[0].test_accuracy.has_value());
}

TEST_CASE("tasks and optimizers keep the order of the results, and without Adam there is no sum") {
  std::vector<RunResult> results;
  Add(&results, "z", "y", {1});
  Add(&results, "z", "b", {1});
  Add(&results, "a", "b", {1});
  Add(&results, "a", "y", {1});
  const Summary summary = Summarize(results);
  std::string order;
  for (const SummaryRow& row : summary.rows) order += row.task + row.optimizer + " ";
  CHECK(order == "zy zb ab ay ");
  CHECK(summary.aggregate.empty());
  CHECK(Summarize({}).rows.empty());
}

TEST_CASE("two results for one seed and steps that differ within a task are errors") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", {1, 2});
  Add(&results, "a", "x", {1, 2});
  results[3].seed = 0;
  CHECK_THROWS_WITH_AS(Summarize(results),
                       "results of task 'a': there are several of x with seed 0", Error);
  results[3].seed = 1;
  results[3].steps = {2};
  CHECK_THROWS_WITH_AS(
      Summarize(results),
      "results of task 'a': x with seed 1 was judged after 2 steps, others after 1", Error);
}

TEST_CASE("seeds are compared in pairs") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", {1, 2, 3, 4, 5, 6, 7, 8});
  Add(&results, "a", "a bit lower", {0.99, 1.98, 2.99, 3.98, 4.99, 5.98, 6.99, 7.98});
  Add(&results, "a", "the same", {1, 2, 3, 4, 5, 6, 7, 8});
  Add(&results, "a", "other seeds", {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9});
  const Summary summary = Summarize(results);
  CHECK(RowOf(summary, "a", "a bit lower").test_verdict == Verdict::kBetter);
  CHECK(RowOf(summary, "a", "a bit lower").train_verdict == Verdict::kBetter);
  CHECK(RowOf(summary, "a", "the same").test_verdict == Verdict::kUnclear);
  CHECK(RowOf(summary, "a", "other seeds").test_verdict == Verdict::kNone);
}

TEST_CASE("two that always diverge are not told apart") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", std::vector<double>(8, kNan));
  Add(&results, "a", "too", std::vector<double>(8, kNan));
  Add(&results, "a", "not", Eight(1));
  const Summary summary = Summarize(results);
  CHECK(RowOf(summary, "a", "too").test_verdict == Verdict::kUnclear);
  CHECK(RowOf(summary, "a", "not").test_verdict == Verdict::kBetter);
}

// Sets the losses on two parts of the test split, from the seed of each of its results.
void SetParts(std::vector<RunResult>* results, const std::string& optimizer, float one,
              float other) {
  for (RunResult& result : *results) {
    if (result.optimizer != optimizer) continue;
    result.test_part_loss = {one, other};
    result.test_loss = {(one + other) / 2.0};
  }
}

TEST_CASE("the choice of the test examples is in the intervals, and in both of a pair") {
  std::vector<RunResult> results;
  for (const char* optimizer : {"Adam", "lower on both", "lower on one"}) {
    Add(&results, "a", optimizer, std::vector<double>(8, 1));
  }
  SetParts(&results, "Adam", 1, 9);
  SetParts(&results, "lower on both", 0.9f, 8.8f);
  SetParts(&results, "lower on one", 0.5f, 9.2f);
  const Summary summary = Summarize(results);
  // Both parts are one of the two with probability 1/4.
  const SummaryRow& adam = RowOf(summary, "a", "Adam");
  CHECK(adam.test_loss.value == 5);
  CHECK(adam.test_loss.interval.low == 1);
  CHECK(adam.test_loss.interval.high == 9);
  CHECK(adam.train_loss.interval.low == adam.train_loss.interval.high);
  CHECK(RowOf(summary, "a", "lower on both").test_verdict == Verdict::kBetter);
  CHECK(RowOf(summary, "a", "lower on one").test_verdict == Verdict::kUnclear);

  results.back().test_part_loss.push_back(1);
  CHECK_THROWS_WITH_AS(Summarize(results),
                       "results of task 'a': lower on one has 3 losses of parts of the test split "
                       "with seed 7, 2 with seed 0",
                       Error);
}

// Adds a baseline with this loss on inner_valid when it was tuned.
void AddTuned(std::vector<RunResult>* results, const std::string& task,
              const std::string& optimizer, double tuning_loss, const std::vector<double>& losses) {
  const size_t first = results->size();
  Add(results, task, optimizer, losses);
  for (size_t i = first; i < results->size(); ++i) {
    RunResult& result = (*results)[i];
    result.learning_rate = {0.1};
    result.at_edge = {false};
    result.tuning_loss = {tuning_loss};
  }
}

TEST_CASE("the best baseline is chosen by its tuning loss, not by what is judged") {
  std::vector<RunResult> results;
  AddTuned(&results, "a", "Adam", 3, Eight(0.8));
  AddTuned(&results, "a", "chosen", 2, Eight(1));
  AddTuned(&results, "a", "lowest", 4, Eight(0.1));
  Add(&results, "a", "learned", Eight(0.5));
  const Summary summary = Summarize(results);
  CHECK(RowOf(summary, "a", "chosen").best_baseline);
  CHECK(!RowOf(summary, "a", "lowest").best_baseline);
  CHECK(RowOf(summary, "a", "chosen").best_verdict == Verdict::kNone);
  CHECK(!RowOf(summary, "a", "chosen").best_p_value.has_value());
  CHECK(RowOf(summary, "a", "Adam").best_verdict == Verdict::kBetter);
  const SummaryRow& learned = RowOf(summary, "a", "learned");
  CHECK(learned.best_verdict == Verdict::kBetter);
  CHECK(learned.best_p_value.value() == doctest::Approx(2.0 / 2001));
  CHECK(AggregateOf(summary, "learned").best_ratio.value().value == doctest::Approx(0.5));
  CHECK(AggregateOf(summary, "learned").best_ratio->interval.high == doctest::Approx(0.5));
  CHECK(AggregateOf(summary, "chosen").best_ratio.value().value == 1);

  // A learned optimizer whose steps are tuned has a tuning loss, and is no baseline.
  std::vector<RunResult> with_tuned = results;
  AddTuned(&with_tuned, "a", "learned-tuned", 1, Eight(0.4));
  for (RunResult& result : with_tuned) {
    if (result.optimizer != "learned-tuned") continue;
    result.hyperparameters["step_multiplier"] = result.learning_rate;
    result.learning_rate.clear();
  }
  const Summary of_tuned = Summarize(with_tuned);
  const SummaryRow& row = RowOf(of_tuned, "a", "learned-tuned");
  CHECK(RowOf(of_tuned, "a", "chosen").best_baseline);
  CHECK(row.step_multiplier == 0.1);
  CHECK(!row.learning_rate.has_value());
  CHECK(row.best_verdict == Verdict::kBetter);
  CHECK(AggregateOf(of_tuned, "learned-tuned").best_ratio.value().value == doctest::Approx(0.4));

  CHECK(AggregateOf(summary, "learned").best_compared == 1);
  // Adam is no part of it.
  const Summary without_adam =
      Summarize(std::vector<RunResult>(results.begin() + 8, results.end()));
  CHECK(!HasReference(without_adam));
  CHECK(AggregateOf(without_adam, "learned").best_ratio->value ==
        AggregateOf(summary, "learned").best_ratio->value);
  CHECK(AggregateOf(without_adam, "learned").best_better == 1);
  CHECK(std::isnan(AggregateOf(without_adam, "learned").test_ratio.value));

  const std::vector<RunResult> one_is_tuned(results.begin(), results.begin() + 8);
  CHECK(!Summarize(one_is_tuned).rows[0].best_baseline);
  CHECK(!AggregateOf(Summarize(one_is_tuned), "Adam").best_ratio.has_value());
}

TEST_CASE("A row's test loss is a fraction of tuned Adam's or the best baseline's, in pairs") {
  std::vector<RunResult> results;
  Add(&results, "a", "Adam", {1, 2, 3, 4});
  Add(&results, "a", "half", {0.5, 1, 1.5, 2});
  Add(&results, "b", "half", {1, 2, 3, 4});
  Add(&results, "c", "Adam", {1, 3});
  Add(&results, "c", "half", {2, 6});
  const Summary summary = Summarize(results);
  const Estimate half = RowOf(summary, "a", "half").test_ratio.value();
  CHECK(half.value == 0.5);
  CHECK(half.interval.low == doctest::Approx(0.5));  // in each resample, though Adam's spread is
  CHECK(half.interval.high == doctest::Approx(0.5));
  const Estimate adam = RowOf(summary, "a", "Adam").test_ratio.value();
  CHECK(adam.value == 1);
  CHECK(adam.interval.low == 1);
  CHECK(adam.interval.high == 1);
  CHECK_FALSE(RowOf(summary, "b", "half").test_ratio.has_value());
  const Estimate few = RowOf(summary, "c", "half").test_ratio.value();
  CHECK(few.value == 2);
  CHECK(std::isnan(few.interval.low));
  CHECK(std::isnan(few.interval.high));

  AddTuned(&results, "d", "Adam", 0.2, {1, 2, 3, 4});
  AddTuned(&results, "d", "SGD", 0.1, {2, 4, 6, 8});
  Add(&results, "d", "half", {0.5, 1, 1.5, 2});
  const Summary against_best = Summarize(results);
  REQUIRE(RowOf(against_best, "d", "SGD").best_baseline);
  CHECK(RowOf(against_best, "d", "half").test_ratio.value().value == 0.25);
  CHECK(RowOf(against_best, "d", "Adam").test_ratio.value().value == 0.5);
}

TEST_CASE("Where both test losses are 0, or both infinite, their fraction is 1") {
  for (const double loss : {0.0, kInfinity}) {
    CAPTURE(loss);
    std::vector<RunResult> results;
    Add(&results, "a", "Adam", {loss, loss, loss, loss});
    Add(&results, "a", "same", {loss, loss, loss, loss});
    const Estimate same = RowOf(Summarize(results), "a", "same").test_ratio.value();
    CHECK(same.value == 1);
    CHECK(same.interval.low == 1);
    CHECK(same.interval.high == 1);
  }
}

TEST_CASE("Losses below 0 have no fractions, but verdicts") {
  std::vector<RunResult> results;
  const auto eight = [](double loss) { return std::vector<double>(8, loss); };
  Add(&results, "a", "Adam", eight(-2));
  Add(&results, "a", "lower", eight(-4));
  Add(&results, "a", "equal", eight(-2));
  Add(&results, "b", "Adam", eight(2));
  Add(&results, "b", "lower", eight(-4));
  Add(&results, "c", "Adam", eight(kInfinity));
  Add(&results, "c", "lower", eight(1));
  Add(&results, "d", "Adam", {-1, 3, 3, 3});  // above 0 in the mean, below in some resamples
  Add(&results, "d", "lower", {1, 1, 1, 1});
  const Summary summary = Summarize(results);
  for (const char* task : {"a", "b", "c"}) {
    CAPTURE(task);
    CHECK_FALSE(RowOf(summary, task, "lower").test_ratio.has_value());
    CHECK(RowOf(summary, task, "lower").test_verdict == Verdict::kBetter);
    CHECK(RowOf(summary, task, "Adam").test_ratio.value().value == 1);
  }
  CHECK(RowOf(summary, "a", "equal").test_ratio.value().value == 1);
  const Estimate some = RowOf(summary, "d", "lower").test_ratio.value();
  CHECK(some.value == doctest::Approx(1.0 / 3));
  CHECK(std::isnan(some.interval.low));
  CHECK(std::isnan(some.interval.high));
}

TEST_CASE("against the best baselines, ratios have a geometric mean and counts are Holm's") {
  std::vector<RunResult> results;
  const std::vector<double> best = Eight(1);
  for (const std::string task : {"half", "twice", "doubtful", "solved"}) {
    AddTuned(&results, task, "Adam", 3, std::vector<double>(8, 2));
    AddTuned(&results, task, "best", 2, task == "solved" ? std::vector<double>(8, 0.0) : best);
  }
  Add(&results, "half", "learned", Eight(0.5));
  Add(&results, "twice", "learned", Eight(2));
  const std::vector<double> losses = {0.9, 0.91, 1.1, 1.03, 0.95, 1.2, 0.96, 1.19};
  Add(&results, "doubtful", "learned", losses);
  Add(&results, "solved", "learned", best);
  const Summary summary = Summarize(results);
  const AggregateRow& learned = AggregateOf(summary, "learned");
  // Of "solved" there is no fraction.
  const double doubtful = InterquartileMean(losses) / InterquartileMean(best);
  CHECK(learned.best_ratio.value().value == doctest::Approx(std::cbrt(0.5 * 2 * doubtful)));
  CHECK(learned.best_better == 1);
  CHECK(learned.best_worse == 2);
  CHECK(learned.best_unclear == 1);
  CHECK(RowOf(summary, "doubtful", "learned").best_p_value.value() > 0.05);
}

TEST_CASE("Of three to seven seeds there are intervals, but neither p-values nor counts") {
  std::vector<RunResult> results;
  AddTuned(&results, "a", "Adam", 3, {3, 3, 3, 3, 3, 3, 3});
  AddTuned(&results, "a", "best", 2, {2, 2, 2, 2, 2, 2, 2});
  Add(&results, "a", "learned", {1, 1, 1, 1, 1, 1, 1});
  const Summary seven = Summarize(results);
  CHECK(RowOf(seven, "a", "learned").best_verdict == Verdict::kNone);
  CHECK_FALSE(RowOf(seven, "a", "learned").best_p_value.has_value());
  CHECK(HasInterval(RowOf(seven, "a", "learned").test_ratio.value()));
  const AggregateRow& learned = AggregateOf(seven, "learned");
  CHECK(HasInterval(learned.best_ratio.value()));
  CHECK(learned.best_better + learned.best_worse + learned.best_unclear == 0);
  CHECK(learned.better + learned.worse + learned.unclear == 0);
  for (const char* optimizer : {"Adam", "best", "learned"}) {
    results.push_back(*std::ranges::find(results, optimizer, &RunResult::optimizer));
    results.back().seed = 7;
  }
  const Summary eight = Summarize(results);
  CHECK(RowOf(eight, "a", "learned").best_verdict == Verdict::kBetter);
  CHECK(AggregateOf(eight, "learned").best_better == 1);
  CHECK(AggregateOf(eight, "learned").better == 1);
}

TEST_CASE("A mean of fractions has no interval where a resample has no fraction") {
  std::vector<RunResult> results;
  AddTuned(&results, "a", "Adam", 3, {3, 3, 3, 3});
  AddTuned(&results, "a", "best", 2, {2, 2, 2, 2});
  Add(&results, "a", "learned", {-1, 1, 1, 1});  // above 0 in the mean
  const Summary summary = Summarize(results);
  const Estimate mean = AggregateOf(summary, "learned").best_ratio.value();
  CHECK(mean.value == doctest::Approx(0.5));
  CHECK(std::isnan(mean.interval.low));
  CHECK(std::isnan(mean.interval.high));
}

TEST_CASE("Over many tasks Holm's test can still say better") {
  std::vector<RunResult> results;
  constexpr int64_t kTasks = 60;
  for (int64_t t = 0; t < kTasks; ++t) {
    const std::string task = std::to_string(t);
    AddTuned(&results, task, "Adam", 3, Eight(2));
    AddTuned(&results, task, "best", 2, Eight(1));
    Add(&results, task, "learned", Eight(0.5));
  }
  CHECK(AggregateOf(Summarize(results), "learned").best_better == kTasks);
}

TEST_CASE("In resamples in which both losses are infinite their ratio is 1") {
  std::vector<RunResult> results;
  const std::vector<double> losses = {1, 1, 1, 1, 1, 1, 1, kInfinity};
  AddTuned(&results, "a", "Adam", 3, {2, 2, 2, 2, 2, 2, 2, 2});
  AddTuned(&results, "a", "best", 2, losses);
  Add(&results, "a", "same", losses);
  const Summary summary = Summarize(results);
  for (const char* optimizer : {"best", "same"}) {
    const Estimate ratio = AggregateOf(summary, optimizer).best_ratio.value();
    CHECK(ratio.value == 1);
    CHECK(ratio.interval.low == 1);
    CHECK(ratio.interval.high == 1);
  }
}

TEST_CASE("Tasks that were trained on and the others have a geometric mean each") {
  std::vector<RunResult> results;
  const std::vector<std::pair<std::string, double>> fractions = {
      {"a", 0.5}, {"b", 0.125}, {"c", 2}, {"d", 1}, {"e", 4}};
  for (const auto& [task, fraction] : fractions) {
    AddTuned(&results, task, "Adam", 3, {2, 2, 2});
    AddTuned(&results, task, "best", 2, {1, 1, 1});
    for (const char* name : {"known", "unknown"}) {
      Add(&results, task, name, {fraction, fraction, fraction});
    }
  }
  const std::vector<OptimizerInfo> infos = {
      {.name = "known",
       .trained_on = TaskSteps{{"a", {1, 7}}, {"b", {1}}, {"c", {7}}, {"elsewhere", {1}}}},
      {.name = "unknown"}};
  const Summary summary = Summarize(results, infos);
  const AggregateRow& known = AggregateOf(summary, "known");
  REQUIRE(known.best_ratio_trained.has_value());
  CHECK(known.best_ratio_trained->count == 2);
  CHECK(known.best_ratio_trained->estimate.value == doctest::Approx(0.25));
  CHECK(known.best_ratio_trained->estimate.interval.low == doctest::Approx(0.25));
  REQUIRE(known.best_ratio_transfer.has_value());
  CHECK(known.best_ratio_transfer->count == 3);  // c was trained on for another number of steps
  CHECK(known.best_ratio_transfer->estimate.value == doctest::Approx(2));
  CHECK(known.best_ratio.value().value == doctest::Approx(std::pow(0.5, 0.2)));
  CHECK(RowOf(summary, "a", "known").trained_on == true);
  CHECK(RowOf(summary, "c", "known").trained_on == false);
  for (const char* name : {"unknown", "Adam"}) {
    CHECK(!RowOf(summary, "a", name).trained_on.has_value());
    CHECK(!AggregateOf(summary, name).best_ratio_trained.has_value());
    CHECK(!AggregateOf(summary, name).best_ratio_transfer.has_value());
  }
  CHECK(AggregateOf(summary, "unknown").best_ratio->value == known.best_ratio->value);

  // What meta-trainings before that one had trained on is unknown.
  std::vector<OptimizerInfo> later = infos;
  later[0].trained_before = true;
  const Summary after = Summarize(results, later);
  CHECK(RowOf(after, "a", "known").trained_on == true);
  CHECK_FALSE(RowOf(after, "c", "known").trained_on.has_value());
  CHECK(AggregateOf(after, "known").best_ratio_trained.value().count == 2);
  CHECK_FALSE(AggregateOf(after, "known").best_ratio_transfer.has_value());
}

TEST_CASE("The speed-up over all tasks is their interquartile mean, never counts as 0") {
  std::vector<RunResult> results;
  int64_t steps_of_x = 0;
  for (const std::string task : {"a", "b", "c", "d", "e"}) {
    Add(&results, task, "Adam", {1, 1, 1});
    Add(&results, task, "x", {1, 1, 1});
    for (auto result = results.end() - 6; result != results.end(); ++result) {
      result->steps = {100};
      result->train_loss.assign(100, 1.0f);
      result->steps_to_adam = {result->optimizer == "x" ? steps_of_x : 100};
    }
    steps_of_x += 10;  // 0: never, 10, 20, 30, 40
  }
  const Summary summary = Summarize(results);
  // Of 0, 10, 5, 3.33 and 2.5 the middle three.
  CHECK(AggregateOf(summary, "x").speedup.value() == doctest::Approx((5 + 10. / 3 + 2.5) / 3));
  CHECK(AggregateOf(summary, "Adam").speedup == 1.0);
}

TEST_CASE("A row says whether something was tuned for its task") {
  std::vector<RunResult> results;
  AddTuned(&results, "a", "Adam", 3, {1, 2, 3});
  Add(&results, "a", "fixed", {1, 2, 3});
  for (RunResult& result : results) result.learning_rate = {0.1};
  const Summary summary = Summarize(results);
  CHECK(RowOf(summary, "a", "Adam").tuned);
  CHECK(!RowOf(summary, "a", "fixed").tuned);
  CHECK(RowOf(summary, "a", "fixed").learning_rate == 0.1);
  CHECK(!RowOf(summary, "a", "Adam").best_baseline);  // only one of the two is tuned
}

}  // namespace
}  // namespace lopt
