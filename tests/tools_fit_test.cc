// lopt fit: the library behind it, then the program as a user runs it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/options.h"
#include "lopt/base/output_directory.h"
#include "lopt/base/record.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learned_scheduler.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/fit/fit.h"
#include "lopt/tools/fit/fit_candidate.h"
#include "lopt/tools/fit/fit_plan.h"
#include "lopt/tools/shell.h"
#include "tests/csv_digits.h"
#include "tests/error_of.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"
#include "tests/text_parts.h"

namespace lopt {
namespace {

// A LearnedScheduler before any meta-training, whose steps are `step_size` long.
ThetaFile Start(double step_size = 0.15) {
  ThetaFile file{.learned_optimizer =
                     Config::Parse(fmt::format(R"({{"type": "LearnedScheduler", "hidden_size": 2,
                         "step_size": {}, "optimizer": {{"type": "LearnableSGDM",
                         "learning_rate": 1000, "momentum": 0.9}}}})",
                                               step_size),
                                   "test"),
                 .theta = {},
                 .version = "test"};
  file.theta = OptimizerRegistry().Make(file.learned_optimizer)->InitTheta(KeyFromSeed(1));
  return file;
}

FitRequest Request(const std::string& task, int64_t updates, int64_t trials) {
  return {.task = Config::Parse(task, "test"),
          .steps = 24,
          .start = "start",
          .updates = updates,
          .trials = trials};
}

constexpr const char* kBowl = R"({"type": "FixedDimQuadraticFamily", "dim": 3})";

FitJudged Judged(const std::string& name, std::vector<double> losses) {
  return {.contender = {.name = name}, .test_loss = std::move(losses)};
}

// What is left of a result when what the clock says is taken away.
std::vector<double> NumbersOf(const FitResult& result) {
  std::vector<double> numbers(result.theta.theta.begin(), result.theta.theta.end());
  for (const FitSearch* search : {&*result.record.steps, &*result.record.kinds,
                                  &*result.record.search, &*result.record.candidates}) {
    for (const FitTrial& trial : search->trials) {
      numbers.push_back(trial.multiplier);
      numbers.push_back(trial.decay);
      numbers.push_back(trial.momentum.value_or(-1));
      numbers.push_back(trial.loss.value_or(-1));
    }
  }
  for (const FitJudged& judged : result.judged) {
    numbers.insert(numbers.end(), judged.test_loss.begin(), judged.test_loss.end());
  }
  return numbers;
}

// --- The verdict
// ----------------------------------------------------------------------------------

TEST_CASE("To be taken, a fit must beat the best of the others in every seed") {
  const FitVerdict take = JudgeFit(
      {Judged("fitted", {1, 2, 3}), Judged("start", {2, 3, 4}), Judged("AdamW", {9, 9, 9})});
  CHECK(take.take);
  CHECK_EQ(
      take.text,
      "Take it: on data that fitting never saw, its loss is 2; the best of the others is start, "
      "with 3. It is lower with 3 of 3 seeds.");
  // A lower mean does not do.
  CHECK_FALSE(JudgeFit({Judged("fitted", {1, 1, 4}), Judged("start", {2, 3, 3})}).take);
  // Nor does an equal loss, or one that beats all but one of the others.
  CHECK_FALSE(JudgeFit({Judged("fitted", {1, 1, 1}), Judged("start", {1, 2, 2})}).take);
  CHECK_FALSE(JudgeFit({Judged("fitted", {2, 2, 2}), Judged("start", {3, 3, 3}),
                        Judged("AdamW", {1, 1, 1})})
                  .take);
}

TEST_CASE("The verdict says what the best of the others was tuned to") {
  std::vector<FitJudged> judged = {Judged("fitted", {2, 2, 2}), Judged("Muon", {1, 1, 1})};
  judged[1].contender.tuned = {{"weight_decay", 0.1}, {"learning_rate", 0.03125}};
  CHECK(Has(JudgeFit(judged).text,
            "the best of the others is Muon (learning_rate 0.0312, weight_decay 0.1), with 1."));
  judged.erase(judged.begin());
  CHECK(Has(JudgeFit(judged).text, "Muon (learning_rate 0.0312, weight_decay 0.1) has the lowest"));
}

TEST_CASE("A training that diverged loses, of whichever optimizer it is") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(JudgeFit({Judged("fitted", {1, 1, 1}), Judged("start", {infinity, 2, nan})}).take);
  CHECK_FALSE(JudgeFit({Judged("fitted", {1, nan, 1}), Judged("start", {2, 2, 2})}).take);
  CHECK_FALSE(JudgeFit({Judged("fitted", {nan, nan, nan}), Judged("start", {nan, nan, nan})}).take);
}

TEST_CASE("Where all of the others diverged somewhere, the best diverged least") {
  const double infinity = std::numeric_limits<double>::infinity();
  const FitVerdict verdict =
      JudgeFit({Judged("fitted", {5, 5, 5}), Judged("start", {infinity, infinity, infinity}),
                Judged("AdamW", {0.1, 0.1, infinity})});
  CHECK_FALSE(verdict.take);
  CHECK(Has(verdict.text, "the best of the others is AdamW, which diverged with 1 of 3 seeds."));
}

TEST_CASE("The table has the best first, in 80 columns") {
  std::vector<FitJudged> judged = {Judged("fitted", {1, 1, 1}),
                                   Judged("AdamW-cosine-decay", {2, 2, 2}),
                                   Judged("start", {0.5, 2, 0.25})};
  judged[1].contender = {.name = "AdamW-cosine-decay", .trials = 10000, .seconds = 36000};
  CHECK_EQ(FitTable(judged),
           "  optimizer               test loss   fitted lower   trials      time\n"
           "  start                      0.9167         1 of 3               0:00\n"
           "> fitted                          1                              0:00\n"
           "  AdamW-cosine-decay              2         3 of 3   10,000  10:00:00\n");
  std::istringstream narrow(FitTable(judged, 40));
  for (std::string line; std::getline(narrow, line);) CHECK_LE(line.size(), 40);
}

// --- Fits
// -----------------------------------------------------------------------------------------

TEST_CASE("A rule whose steps are plainly too large gets smaller ones, and is better for it") {
  const TempDirectory scratch;
  const FitResult result =
      RunFit(Request(kBowl, 0, 2), Start(20), {.out_dir = scratch / "fit", .threads = 2});
  REQUIRE_FALSE(result.interrupted);
  const FitSearch& steps = *result.record.steps;
  REQUIRE_EQ(steps.trials.size(), 14);
  for (const size_t first : {0, 7}) {
    CHECK_EQ(steps.trials[first].kind, first > 0 ? kAdamKind : kTrainedKind);
    CHECK_EQ(steps.trials[first].multiplier, 1);
    CHECK_EQ(steps.trials[first + 6].kind, first > 0 ? kAdamKind : kTrainedKind);
  }
  CHECK_LT(steps.trials[static_cast<size_t>(steps.best)].multiplier, 0.2);
  CHECK_EQ(result.record.search->trials.size(), 2);
  const FitSearch& candidates = *result.record.candidates;
  CHECK_EQ(candidates.trials[static_cast<size_t>(candidates.best)].name, "searched");
  REQUIRE_EQ(result.judged[0].contender.name, "fitted");
  REQUIRE_EQ(result.judged[1].contender.name, "start");
  for (size_t s = 0; s < 3; ++s) {
    CHECK_LT(result.judged[0].test_loss[s], 0.1 * result.judged[1].test_loss[s]);
  }
  CHECK_EQ(result.theta.chosen_on, "inner_valid");
}

// A step of a candidate from `params`, [9], by the gradient [9], in a matrix and a vector.
std::vector<float> StepOf(const ThetaFile& candidate, std::vector<float> params,
                          const std::vector<float>& gradient) {
  const auto optimizer = OptimizerRegistry().Make(candidate.learned_optimizer);
  const Layout layout({{"w", {2, 3}}, {"b", {3}}});
  const auto rule = optimizer->Bind(
      layout, {candidate.theta.data(), static_cast<size_t>(candidate.theta.size())});
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  Workspace scratch;
  const StepInfo info{.step = 0, .num_steps = 24};
  rule->InitState(info, params, state);
  rule->Update(info, gradient, params, state, scratch);
  return params;
}

TEST_CASE("A candidate's step is that of the start times its multipliers, or Adam's direction") {
  const std::vector<float> params = {1, -2, 3, 0.5, 4, -1, 2, 7, -3};
  const std::vector<float> gradient = {0.5, 1, -1, 2, 0.25, 3, -2, 1, 1};
  const auto step = [&](const FitTrial& trial) {
    return StepOf(MakeCandidate(Start(20), trial), params, gradient);
  };
  const std::vector<float> plain = StepOf(Start(20), params, gradient);
  const std::vector<float> multiplied = step({.multiplier = 0.25});
  const std::vector<float> decayed = step({.multiplier = 0.25, .decay = 100});
  const std::vector<float> adam = step({.kind = kAdamKind, .multiplier = 0.25});
  constexpr float kDecay = 5e-4F;  // the option weight_decay, at the first step
  for (size_t i = 0; i < params.size(); ++i) {
    CAPTURE(i);
    // Rounding of the biases' logarithm and of the difference of params.
    const float near = 1e-5F * (1 + std::abs(plain[i]));
    const float step_of_start = plain[i] - params[i] + kDecay * params[i];
    CHECK_LE(std::abs(multiplied[i] - (params[i] + 0.25F * step_of_start - kDecay * params[i])),
             near);
    CHECK_LE(std::abs(decayed[i] - (multiplied[i] - 99 * kDecay * params[i])), near);
    // As long as the start's step of the tensor, and equally long in all elements.
    const size_t first = i < 6 ? 0 : 6;
    const size_t end = i < 6 ? 6 : 9;
    float squares = 0;
    for (size_t j = first; j < end; ++j) {
      const float move = multiplied[j] - params[j] + kDecay * params[j];
      squares += move * move;
    }
    const float size = std::sqrt(squares / static_cast<float>(end - first));
    const float move = -std::copysign(size, gradient[i]) - kDecay * params[i];
    CHECK_LE(std::abs(adam[i] - (params[i] + move)), 1e-3F * size);  // digits of Adam's steps
  }
  const ThetaFile file = MakeCandidate(Start(), {.momentum = 0.75});
  CHECK_EQ(file.theta[1], doctest::Approx(std::log(0.25)));
  CHECK_EQ(MakeCandidate(Start(), {.kind = kAdamKind, .momentum = 0.75}).theta[1],
           doctest::Approx(std::log(0.25)));
}

// A start with orthogonal steps, meta-trained.
ThetaFile TrainedStart() {
  ThetaFile file = ReadThetaFile(SourcePath("trained/fast.safetensors"));
  REQUIRE_EQ(file.learned_optimizer.Type(), "LearnedScheduler");
  return file;
}

TEST_CASE("A trained start with orthogonal steps has five kinds, each with its own directions") {
  const ThetaFile start = TrainedStart();
  const Layout both({{"w", {2, 3}}, {"b", {3}}});
  CHECK(FitKindsOf(start, both) == std::vector<std::string>{kTrainedKind, kAdamKind,
                                                            kAdamVectorsKind, kPlainKind,
                                                            kPlainAdamKind});
  CHECK(FitKindsOf(Start(), both) == std::vector<std::string>{kTrainedKind, kAdamKind});
  // No kind twice: without vectors or without matrices.
  CHECK(FitKindsOf(start, Layout({{"x", {2, 3}}})) ==
        std::vector<std::string>{kTrainedKind, kAdamKind, kPlainKind, kPlainAdamKind});
  CHECK(FitKindsOf(start, Layout({{"x", {6}}})) ==
        std::vector<std::string>{kTrainedKind, kAdamKind, kPlainKind});

  const std::vector<float> params = {1, -2, 3, 0.5, 4, -1, 2, 7, -3};
  const std::vector<float> gradient = {0.5, 1, -1, 2, 0.25, 3, -2, 1, 1};
  const auto step = [&](const ThetaFile& file) { return StepOf(file, params, gradient); };
  const auto of_kind = [&](const char* kind) { return step(MakeCandidate(start, {.kind = kind})); };
  CHECK(of_kind(kTrainedKind) == step(start));
  // The matrix, [6], as by the start, and the vector behind it as with Adam's directions.
  const std::vector<float> mixed = of_kind(kAdamVectorsKind);
  const std::vector<float> plain = step(start);
  const std::vector<float> adam = of_kind(kAdamKind);
  for (size_t i = 0; i < mixed.size(); ++i) {
    CAPTURE(i);
    CHECK_EQ(mixed[i], (i < 6 ? plain : adam)[i]);
    CHECK_NE(mixed[i], (i < 6 ? adam : plain)[i]);
  }
  // The plain one's first step, with the schedule at 1: an orthogonal matrix times step_size, and a
  // vector of the length step_size whose elements are equally large; both beside the decay.
  const auto options = ReadOptions<LearnedSchedulerOptions>(start.learned_optimizer);
  const std::vector<float> plain_step = of_kind(kPlainKind);
  const auto moved_by = [&](const std::vector<float>& step_of_kind) {
    std::vector<double> moved;
    for (size_t i = 0; i < params.size(); ++i) {
      moved.push_back((params[i] * (1 - options.weight_decay) - step_of_kind[i]) /
                      options.step_size);
    }
    return moved;
  };
  std::vector<double> moved = moved_by(plain_step);
  Eigen::Map<const Eigen::Matrix<double, 2, 3, Eigen::RowMajor>> matrix(moved.data());
  // Newton-Schulz leaves singular values between .7 and 1.2; those of the gradient are .54
  // and 1.31.
  const Eigen::Matrix2d square = matrix * matrix.transpose();
  const double mean = square.trace() / 2;
  const double apart = std::hypot((square(0, 0) - square(1, 1)) / 2, square(0, 1));
  CHECK_GE(std::sqrt(mean - apart), 0.7);
  CHECK_LE(std::sqrt(mean + apart), 1.2);
  for (size_t i = 6; i < 9; ++i) {
    CHECK_EQ(moved[i],
             doctest::Approx(std::copysign(1 / std::sqrt(3.0), gradient[i])).epsilon(1e-3));
  }
  // With Adam's directions the matrix, too, moves all of its elements equally far: by step_size
  // over the root of its longer side.
  const std::vector<double> moved_by_adam = moved_by(of_kind(kPlainAdamKind));
  for (size_t i = 0; i < 9; ++i) {
    CHECK_EQ(moved_by_adam[i],
             doctest::Approx(std::copysign(1 / std::sqrt(3.0), gradient[i])).epsilon(1e-3));
  }
  // It is made for a task that may be longer or larger than those of the start's meta-training.
  const ThetaFile made = MakeCandidate(start, {});
  CHECK_GT(start.trained_horizon, 0);
  CHECK_EQ(made.trained_horizon, 0);
  CHECK_FALSE(made.trained_range.known());
  // A momentum is that of all directions.
  const ThetaFile file = MakeCandidate(start, {.kind = kAdamVectorsKind, .momentum = 0.75});
  const auto optimizer = OptimizerRegistry().Make(file.learned_optimizer);
  for (const char* name :
       {"optimizer/matrices/one_minus_momentum", "optimizer/vectors/one_minus_beta1"}) {
    CHECK_EQ(file.theta[optimizer->theta_layout().Find(name).offset],
             doctest::Approx(std::log(0.25)));
  }
}

TEST_CASE("The search has the two kinds that were best in whole trainings, and ends with one") {
  const TempDirectory scratch;
  const FitResult result =
      RunFit(Request(kBowl, 0, 60), TrainedStart(), {.out_dir = scratch / "fit", .threads = 2});
  const std::vector<FitTrial>& steps = result.record.steps->trials;
  REQUIRE_EQ(steps.size(), 21);  // the bowl has no matrices
  // The start as it is, and each kind with the multiplier that was best in short trainings.
  const std::vector<FitTrial>& tried = result.record.kinds->trials;
  CHECK_EQ(tried.front().name, "start");
  std::map<std::string, double> lowest;
  for (const FitTrial& trial : tried) {
    const double loss = trial.loss.value_or(1e9);
    if (!lowest.contains(trial.kind) || loss < lowest[trial.kind]) lowest[trial.kind] = loss;
    if (&trial == &tried.front()) continue;
    const auto first = std::ranges::find(steps, trial.kind, &FitTrial::kind);
    const auto short_one = std::ranges::min_element(
        first, first + 7, {}, [](const FitTrial& one) { return one.loss.value_or(1e9); });
    CHECK_EQ(trial.multiplier, short_one->multiplier);
  }
  std::vector<std::pair<double, std::string>> best;
  for (const auto& [kind, loss] : lowest) best.emplace_back(loss, kind);
  std::ranges::sort(best);
  REQUIRE_EQ(best.size(), 3);
  // 60 trainings: 21 quarters of one (6), one or two kinds and the start, 5 optimizers with three
  // seeds, and these.
  const std::vector<FitTrial>& trials = result.record.search->trials;
  REQUIRE_GE(trials.size(), 21);
  const std::string kinds[2] = {best[0].second, best[1].second};
  double losses[2] = {1e9, 1e9};
  for (size_t i = 0; i < 14; ++i) {
    CHECK_EQ(trials[i].kind, kinds[i / 7]);
    losses[i / 7] = std::min(losses[i / 7], trials[i].loss.value_or(1e9));
  }
  for (size_t i = 14; i < 21; ++i) CHECK_EQ(trials[i].kind, kinds[losses[1] < losses[0]]);
}

TEST_CASE("Of a start that has Adam's directions itself no others are tried") {
  ThetaFile start{.learned_optimizer = Config::Parse(
                      R"({"type": "LearnedScheduler", "hidden_size": 2,
                          "optimizer": {"type": "LearnableAdam", "learning_rate": 1000}})",
                      "test"),
                  .theta = {}};
  start.theta = OptimizerRegistry().Make(start.learned_optimizer)->InitTheta(KeyFromSeed(1));
  const TempDirectory scratch;
  const FitResult result = RunFit(Request(kBowl, 0, 30), start, {.out_dir = scratch / "fit"});
  CHECK_EQ(result.record.steps->trials.size(), 7);
  // 30 trainings: 7 quarters of one (2), 3 optimizers with three seeds (9), and these, one of which
  // is both.
  CHECK_EQ(result.record.kinds->trials.size() + result.record.search->trials.size(), 20);
}

TEST_CASE("The search tries each kind of directions, then the better one") {
  const TempDirectory scratch;
  const FitResult result =
      RunFit(Request(kBowl, 0, 42), Start(), {.out_dir = scratch / "fit", .threads = 2});
  // 42 trainings: 14 quarters of one (4), 4 optimizers with three seeds (12), and these, two of
  // which are both.
  const std::vector<FitTrial>& trials = result.record.search->trials;
  const std::vector<FitTrial>& tried = result.record.kinds->trials;
  REQUIRE_EQ(trials.size() + tried.size(), 28);
  const std::string kinds[2] = {trials[0].kind, trials[7].kind};
  CHECK_NE(kinds[0], kinds[1]);
  double best[2] = {1e9, 1e9};
  for (size_t i = 0; i < 14; ++i) {
    CHECK_EQ(trials[i].kind, kinds[i / 7]);
    best[i / 7] = std::min(best[i / 7], trials[i].loss.value_or(1e9));
  }
  for (size_t i = 14; i < 21; ++i) CHECK_EQ(trials[i].kind, kinds[best[1] < best[0]]);
  // What compared the kinds comes first.
  for (const size_t first : {0, 7}) {
    CHECK(std::ranges::any_of(tried, [&](const FitTrial& one) {
      return one.kind == trials[first].kind && one.multiplier == trials[first].multiplier &&
             one.loss == trials[first].loss;
    }));
    CHECK_EQ(trials[first].decay, 1);
    CHECK_FALSE(trials[first].momentum.has_value());
    CHECK_NE(trials[first + 1].decay, 1);
    CHECK(trials[first + 1].momentum.has_value());
  }
  CHECK_EQ(result.record.bases->trials.size(), 4);
}

TEST_CASE("A round may have the trial alone that compared the kinds") {
  for (int64_t trials = 20; trials <= 23; ++trials) {
    CAPTURE(trials);
    const TempDirectory scratch;
    const FitResult result =
        RunFit(Request(kBowl, 0, trials), Start(), {.out_dir = scratch / "fit", .threads = 2});
    CHECK_FALSE(result.interrupted);
    // 14 quarters of a training (4), 3 optimizers with three seeds, and these, of which the first
    // of each round are both: up to 21 trainings the search has one round.
    const size_t searched = result.record.search->trials.size();
    const int64_t both = trials <= 21 ? 1 : 2;
    CHECK_EQ(static_cast<int64_t>(searched + result.record.kinds->trials.size()),
             trials - 13 + both);
  }
}

// A loss that no optimizer can change.
class ConstantLoss : public TaskFamily {
 public:
  ConstantLoss() : TaskFamily({.params = Layout({{"x", {2}}})}) {}

 private:
  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    std::ranges::fill(params, 1.0F);
  }
  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    std::ranges::fill(e.losses, 2.0F);
    if (!e.gradients.empty()) std::ranges::fill(e.gradients, 1.0F);
  }
};

TEST_CASE("Where nothing can be gained the start stays as it is, and the verdict says no") {
  TaskRegistry().Add<QuadraticOptions>("ConstantLoss", "For this test.",
                                       [](const QuadraticOptions&, const TaskResources&) {
                                         return std::make_shared<ConstantLoss>();
                                       });
  const TempDirectory scratch;
  const FitResult result =
      RunFit(Request(R"({"type": "ConstantLoss"})", 2, 2), Start(), {.out_dir = scratch / "fit"});
  REQUIRE(result.record.take.has_value());
  CHECK_FALSE(*result.record.take);
  CHECK(Has(result.record.verdict, "Do not: on inner_valid nothing that fitting made was better"));
  CHECK(result.theta.theta == Start().theta);
  CHECK_EQ(result.judged.front().contender.name, "start");  // nothing was fitted
}

// --- What fitting sees
// ----------------------------------------------------------------------------

// Counts which rows are evaluated.
class CountingTask : public TaskFamily {
 public:
  static constexpr int64_t kRows = 40;

  CountingTask()
      : TaskFamily({.params = Layout({{"x", {2}}}),
                    .data = {.splits = {{0, 10}, {10, 20}, {20, 30}, {30, 40}}, .batch_size = 4}}) {
  }

  // Rows that were evaluated since the last call.
  static std::set<int32_t> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(seen_, {});
  }

 private:
  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    std::ranges::fill(params, 1.0F);
  }
  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    {
      const std::lock_guard lock(mutex_);
      seen_.insert(e.examples.begin(), e.examples.end());
    }
    for (int64_t r = 0; r < e.rows; ++r) {
      const auto params = e.params.subspan(static_cast<size_t>(2 * r), 2);
      e.losses[r] = 1 + params[0] * params[0] + params[1] * params[1];
      if (e.gradients.empty()) continue;
      e.gradients[2 * r] = 2 * params[0];
      e.gradients[2 * r + 1] = 2 * params[1];
    }
  }

  static inline std::mutex mutex_;
  static inline std::set<int32_t> seen_;
};

// Of which splits there are rows.
std::string SplitsOf(const std::set<int32_t>& rows) {
  std::string splits;
  for (const int32_t first : {0, 10, 20, 30}) {
    const auto row = rows.lower_bound(first);
    const bool any = row != rows.end() && *row < first + 10;
    splits += any ? "x" : ".";
  }
  return splits;
}

TEST_CASE("Fitting reads no row of the split test, and tries nothing on what it meta-trains on") {
  TaskRegistry().Add<QuadraticOptions>("CountingTask", "For this test.",
                                       [](const QuadraticOptions&, const TaskResources&) {
                                         return std::make_shared<CountingTask>();
                                       });
  const TempDirectory scratch;
  std::vector<std::pair<std::string, std::string>> splits;  // of each phase
  std::string phase;
  const auto note = [&] {
    if (!phase.empty()) splits.emplace_back(phase, SplitsOf(CountingTask::Take()));
  };
  CountingTask::Take();
  RunFit(Request(R"({"type": "CountingTask"})", 2, 2), Start(3),
         {.out_dir = scratch / "fit", .on_progress = [&](const FitProgress& progress) {
            if (progress.phase == phase) return;
            note();
            phase = progress.phase;
          }});
  note();
  using Phases = std::vector<std::pair<std::string, std::string>>;
  CHECK(splits == Phases{{"measuring", "xx.."},
                         {"step sizes", "xx.."},
                         {"kinds", "xx.."},
                         {"searching", "xx.."},
                         {"whole trainings", "xx.."},
                         {"meta-training", "x.x."},
                         {"its whole trainings", "xx.."},
                         {"judging fitted", "x..x"},
                         {"judging start", "x..x"},
                         {"judging AdamW-cosine-decay", "xx.x"},
                         {"judging Muon-cosine", "xx.x"},
                         {"judging random-search", "xx.x"}});
}

// --- Stopping and resuming
// ------------------------------------------------------------------------

TEST_CASE("With updates and trials a fit has the same bits on any threads, also after stops") {
  const TempDirectory scratch;
  const FitRequest request = Request(kBowl, 3, 3);
  FitOptions one{.out_dir = scratch / "one", .threads = 1};
  double done = -1;
  one.on_progress = [&](const FitProgress& progress) {
    CHECK_GE(progress.done, 0);
    CHECK_LE(progress.done, 1);
    done = progress.done;
  };
  const FitResult whole = RunFit(request, Start(3), one);
  CHECK_GT(done, 0);
  CHECK(NumbersOf(RunFit(request, Start(3), {.out_dir = scratch / "two", .threads = 2})) ==
        NumbersOf(whole));

  // Each part stops as soon as it is in a phase that no earlier part was in.
  std::set<std::string> phases;
  FitResult part{.interrupted = true};
  int64_t parts = 0;
  for (; part.interrupted; ++parts) {
    REQUIRE_LT(parts, 20);
    std::atomic<bool> stop = false;
    FitOptions options{.out_dir = scratch / "parts", .threads = 2};
    options.existing = parts == 0 ? ExistingFit::kRefuse : ExistingFit::kResume;
    options.stop = &stop;
    options.on_progress = [&](const FitProgress& progress) {
      if (phases.insert(progress.phase).second) stop = true;
    };
    // Only the first part is told what to do.
    part = RunFit(parts == 0 ? request : FitRequest{}, Start(parts == 0 ? 3 : 1), options);
    // What there is at a stop can be used.
    CHECK_EQ(ReadThetaFile(scratch / "parts/theta.safetensors").theta.size(),
             whole.theta.theta.size());
  }
  CHECK_GE(parts, 10);
  const std::vector<double> numbers = NumbersOf(part);
  const std::vector<double> wanted = NumbersOf(whole);
  REQUIRE_EQ(part.judged.size(), whole.judged.size());
  REQUIRE_EQ(numbers.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    CAPTURE(i);
    CHECK_EQ(numbers[i], wanted[i]);
  }
  CHECK_EQ(part.record.status, "finished");
}

TEST_CASE("Results that a machine lost as it went down are made anew") {
  const TempDirectory scratch;
  FitOptions options{.out_dir = scratch / "fit", .threads = 2};
  const FitResult whole = RunFit(Request(kBowl, 3, 3), Start(20), options);
  REQUIRE(whole.judged.front().contender.name == kFitted);
  options.existing = ExistingFit::kResume;
  for (const auto& [lost, left] :
       {std::pair("fitted", ""), std::pair("Muon-cosine", "{\"half a li\n")}) {
    CAPTURE(lost);
    WriteTextFile(scratch / "fit/compare/" + lost + "/results.jsonl", left);
    const FitResult again = RunFit({}, Start(), options);
    CHECK_EQ(again.record.take, whole.record.take);
    CHECK_EQ(again.record.verdict, whole.record.verdict);
    CHECK(NumbersOf(again) == NumbersOf(whole));
  }
}

TEST_CASE("A meta-training that wrote no config yet begins anew") {
  const TempDirectory scratch;
  const FitRequest request = Request(kBowl, 3, 3);
  const FitResult whole = RunFit(request, Start(20), {.out_dir = scratch / "whole"});
  std::atomic<bool> stop = false;
  FitOptions options{.out_dir = scratch / "fit", .stop = &stop};
  options.on_progress = [&](const FitProgress& progress) {
    stop = progress.phase == "meta-training";
  };
  REQUIRE(RunFit(request, Start(20), options).interrupted);
  const std::string meta = scratch / "fit/meta";
  RemoveMatching(meta, [](std::string_view name) { return name != "manifest.json"; });
  const FitResult resumed =
      RunFit({}, Start(), {.out_dir = scratch / "fit", .existing = ExistingFit::kResume});
  CHECK(NumbersOf(resumed) == NumbersOf(whole));
}

TEST_CASE("A fit whose directory another process took over writes no more into it") {
  const TempDirectory scratch;
  FitOptions options{.out_dir = scratch / "fit"};
  std::string record;
  options.on_progress = [&](const FitProgress& progress) {
    if (progress.phase == "meta-training" && std::filesystem::remove(scratch / "fit/fit.lock")) {
      record = ReadTextFile(scratch / "fit/fit.json");
    }
  };
  CHECK(ErrorOf([&] {
          RunFit(Request(kBowl, 3, 3), Start(20), options);
        }).starts_with(scratch / "fit: another process has taken this directory over"));
  CHECK_EQ(ReadTextFile(scratch / "fit/fit.json"), record);
}

TEST_CASE("Time that was measured with so many threads is not divided with others") {
  const TempDirectory scratch;
  std::atomic<bool> stop = false;
  FitOptions options{.out_dir = scratch / "fit", .threads = 2, .stop = &stop};
  options.on_progress = [&](const FitProgress& progress) { stop = progress.phase == "step sizes"; };
  FitRequest request = Request(kBowl, 0, 2);
  request.trials = {};
  request.minutes = 1;
  REQUIRE(RunFit(request, Start(), options).interrupted);
  options.existing = ExistingFit::kResume;
  options.threads = 1;
  CHECK(Has(ErrorOf([&] { RunFit({}, Start(), options); }),
            "it was begun with 2 threads, by whose speed its time is divided, and this process has "
            "1; give as many (--threads)"));
}

TEST_CASE("A stop leaves the best so far: the start, then what the search found") {
  const TempDirectory scratch;
  const auto stop_in = [&](const std::string& phase, ExistingFit existing) {
    std::atomic<bool> stop = false;
    FitOptions options{.out_dir = scratch / "fit", .existing = existing, .stop = &stop};
    options.on_progress = [&](const FitProgress& progress) { stop = progress.phase == phase; };
    return RunFit(Request(kBowl, 3, 3), Start(20), options);
  };
  const FitResult first = stop_in("step sizes", ExistingFit::kRefuse);
  CHECK(first.interrupted);
  CHECK(first.theta.theta == Start(20).theta);
  // The start's steps are far too large, so the first whole trainings find what is better.
  const FitResult early = stop_in("searching", ExistingFit::kResume);
  CHECK(early.interrupted);
  CHECK_FALSE(early.record.search.has_value());
  const FitSearch& kinds = *early.record.kinds;
  const ThetaFile found = MakeCandidate(Start(20), kinds.trials[static_cast<size_t>(kinds.best)]);
  CHECK(early.theta.theta != Start(20).theta);
  CHECK(early.theta.theta == found.theta);
  const FitResult second = stop_in("meta-training", ExistingFit::kResume);
  CHECK(second.interrupted);
  CHECK(second.theta.theta != Start(20).theta);
  CHECK(ReadThetaFile(scratch / "fit/theta.safetensors").theta ==
        ReadThetaFile(scratch / "fit/base.safetensors").theta);
}

// --- Time
// -----------------------------------------------------------------------------------------

// A fit of this many minutes, measured, in which all trainings take a second, on one thread.
FitRecord MeasuredRecord(double minutes) {
  FitRecord record;
  record.request = {.steps = 80, .minutes = minutes};
  record.measured = FitMeasurement{.seconds = 4};
  record.measured->training = {{"recommended", 1},
                               {FitTrainingName("recommended", kAdamKind), 1},
                               {"AdamW-cosine-decay", 1},
                               {"Muon-cosine", 1},
                               {"random-search", 1}};
  record.measured->kinds = {kTrainedKind, kAdamKind, kAdamVectorsKind, kPlainKind, kPlainAdamKind};
  return record;
}

// What a fit takes that is planned as it goes, in seconds, if trainings take so many seconds each
// in truth.
double SecondsOfFit(double minutes, double training, int threads) {
  FitRecord record = MeasuredRecord(minutes);
  const FitPlan plan(record, threads);
  // So many trainings side by side; one on all threads, one after the other, takes `training`.
  const auto seconds_of = [&](int64_t trainings) {
    return training * static_cast<double>((trainings + threads - 1) / threads * threads);
  };
  const int64_t seeds = plan.SearchSeeds();
  record.measured->search_seeds = seeds;
  record.steps = FitSearch{.seconds = 5 * seconds_of(7) / 4, .trials = std::vector<FitTrial>(35)};
  record.kinds = FitSearch{.seconds = seconds_of(6 * seeds), .trials = std::vector<FitTrial>(6)};
  for (;;) {
    const int64_t more = plan.NextRound();
    if (more == 0) break;
    FitSearch search = record.search.value_or(FitSearch());
    // The first of the first two rounds is one of the six above.
    const bool begins = search.trials.size() < 14;
    search.seconds += seconds_of((begins ? more - 1 : more) * seeds);
    search.trials.insert(search.trials.end(), static_cast<size_t>(more),
                         {.kind = search.trials.size() == 7 ? kAdamKind : kTrainedKind});
    record.search = search;
  }
  const int64_t finalists = Finalists(std::ssize(record.search->trials));
  record.bases = FitSearch{.seconds = seconds_of(3 * seeds * (1 + finalists))};
  record.candidates = FitSearch{};
  double seconds = record.FittingSeconds() + 5 * 3 * training;
  for (const char* rival : {"AdamW-cosine-decay", "Muon-cosine", "random-search"}) {
    const FitPlan::Tuning tuning = plan.TuningOf(rival);
    CHECK_LE(tuning.trials, 500);
    // As long as fitting took.
    const double tuned = static_cast<double>(tuning.trials) / 7 * seconds_of(7 * tuning.seeds);
    CHECK_EQ(tuned, doctest::Approx(record.FittingSeconds()).epsilon(0.03));
    seconds += tuned;
  }
  return seconds;
}

TEST_CASE("A fit uses its minutes, also where trainings take another time than was measured") {
  // With less, the fewest trainings alone take longer if they are slower than measured.
  for (const double minutes : {6, 8, 12, 20, 60}) {
    for (const double training : {0.7, 1.0, 1.5}) {
      for (const int threads : {1, 2, 4}) {
        CAPTURE(minutes);
        CAPTURE(training);
        CAPTURE(threads);
        const double part = SecondsOfFit(minutes, training, threads) / (60 * minutes);
        CHECK_GE(part, 0.9);
        CHECK_LE(part, 1.05);
      }
    }
  }
}

TEST_CASE("Kinds that are quicker than the start do not count as slowness") {
  FitRecord record = MeasuredRecord(60);
  record.measured->training["recommended"] = 3;
  record.measured->search_seeds = 1;
  record.steps = FitSearch{.seconds = 1, .trials = std::vector<FitTrial>(35)};
  // Four of the six at 3 s and two at 1 s; then a round of six at 1 s.
  record.kinds = FitSearch{.seconds = 14, .trials = std::vector<FitTrial>(6)};
  record.search = FitSearch{.seconds = 6, .trials = std::vector<FitTrial>(7, {.kind = kAdamKind})};
  record.candidates = FitSearch{};
  // As long as fitting took: 4 + 1 + 14 + 6 s, at a second each.
  const FitPlan::Tuning tuning = FitPlan(record, 1).TuningOf("Muon-cosine");
  CHECK_EQ(tuning.trials * tuning.seeds, 25);
}

TEST_CASE("With five kinds the least time is that of 160 trainings") {
  // Measuring takes 4 s, 35 quarters of a training 8.75, the start and each kind 6, a round for
  // each of two kinds 12 beside these, and three seeds of three candidates 9: 39.75 s. Each of
  // three rivals is tuned as long, and 15 trainings judge: 174 s.
  FitRecord record = MeasuredRecord(2.5);
  CHECK_NE(
      ErrorOf([&] { FitPlan(record, 1).RequireTime(); }).find("give at least 3, or fewer steps"),
      std::string::npos);
  record.request.minutes = 174.5 / 60;
  FitPlan(record, 1).RequireTime();
  // Fewer steps would not help where measuring takes most of it.
  record.request.minutes = 3;
  record.measured->seconds = 40;
  CHECK_EQ(ErrorOf([&] { FitPlan(record, 1).RequireTime(); }),
           "fit: to measure how fast the task is trained took 40 s, so that 3 minutes are "
           "too few: give at least 6");
}

TEST_CASE("A rival gets less trials where those of the one before took longer than measured") {
  FitRecord record = MeasuredRecord(60);
  record.measured->seconds = 800;
  record.candidates = FitSearch{};
  const FitPlan plan(record, 1);
  CHECK_EQ(plan.TuningOf("Muon-cosine").trials * plan.TuningOf("Muon-cosine").seeds, 800);
  // 100 trials and three trainings took four seconds each.
  record.contenders = {{.name = "AdamW-cosine-decay", .trials = 100, .seconds = 412}};
  CHECK_EQ(plan.TuningOf("Muon-cosine").trials, 200);
}

TEST_CASE("Meta-training gets half of the time, or more, if that is enough for 10 updates") {
  // Of 60 minutes 15 are for fitting: 900 seconds less judging, measuring, step sizes, kinds and
  // trainings that decide.
  FitRecord record = MeasuredRecord(60);
  const FitPlan plan(record, 1);
  const double fitting = (3600. - 15) / 4;
  const double left = fitting - 4 - 8.75 - 6 - 3 * (1.0 + static_cast<double>(Finalists(7))) - 3;
  record.measured->update_seconds = 10;
  CHECK_EQ(plan.UpdatesBesideSearch(), static_cast<int64_t>(left / 20));
  record.measured->update_seconds = 43;
  CHECK_EQ(plan.UpdatesBesideSearch(), 10);
  record.measured->update_seconds = 45;
  CHECK_EQ(plan.UpdatesBesideSearch(), 0);
  // 140 trials take the rest with so many seeds.
  CHECK_EQ(plan.SearchSeeds(), static_cast<int64_t>((left + 3) / 140));
  // With a week, 1,120 trainings are enough for the search.
  FitRecord week = MeasuredRecord(7 * 24 * 60);
  week.measured->update_seconds = 100;
  CHECK_EQ(FitPlan(week, 1).SearchSeeds(), 8);
  CHECK_EQ(FitPlan(week, 1).UpdatesBesideSearch(),
           static_cast<int64_t>(((7 * 24 * 3600. - 15) / 4 - 4 - 8.75 - 6 - 12 - 1120) / 100));
  // With a training of 80 steps an update trains it about 20 times.
  CHECK(plan.MayMetaTrain());
  CHECK_FALSE(FitPlan(MeasuredRecord(3), 1).MayMetaTrain());
}

TEST_CASE("A fit that cannot be done leaves the one that it was to replace") {
  const TempDirectory scratch;
  const std::string out = scratch / "fit";
  RunFit(Request(kBowl, 1, 2), Start(), {.out_dir = out});
  const auto bytes = [&] {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(out)) {
      all[entry.path()] = entry.is_directory() ? "" : ReadTextFile(entry.path());
    }
    return all;
  };
  const auto before = bytes();
  const auto error = [&](const FitRequest& request, const ThetaFile& start) {
    return ErrorOf(
        [&] { RunFit(request, start, {.out_dir = out, .existing = ExistingFit::kReplace}); });
  };
  FitRequest request = Request(kBowl, 2, 2);
  request.updates = {};
  request.minutes = 1e-6;
  CHECK(Has(error(request, Start()), " minutes are too few"));
  CHECK(bytes() == before);
  ThetaFile start = Start();
  start.theta[1] = std::numeric_limits<float>::quiet_NaN();
  CHECK(error(Request(kBowl, 0, 2), start)
            .starts_with("fit: the start: weights must be finite numbers; theta/"));
  CHECK(bytes() == before);
  start = Start();
  start.theta.conservativeResize(start.theta.size() - 1);
  CHECK(error(Request(kBowl, 0, 2), start).starts_with("fit: the start: theta has "));
  CHECK(bytes() == before);
  const std::atomic<bool> stop = true;
  const FitResult stopped =
      RunFit(Request(kBowl, 0, 2), Start(),
             {.out_dir = out, .existing = ExistingFit::kReplace, .stop = &stop});
  CHECK(stopped.interrupted);
  CHECK(stopped.kept_other);
  CHECK(bytes() == before);
  CHECK_EQ(error(Request(R"({"type": "FixedDimQuadraticFamily", "dim": 0})", 0, 2), Start())
               .find("no error"),
           std::string::npos);
  CHECK(bytes() == before);
  CHECK_EQ(error(Request(kBowl, 0, 2), Start()), "no error");
  CHECK(bytes() != before);
}

TEST_CASE("A fit goes on with the data that it began with alone") {
  const TempDirectory data;
  const TempDirectory scratch;
  WriteCsvDigits(data.path(), 1);
  FitRequest request = Request(
      R"({"type": "ImageMLP", "data": "csv", "image_size": 0, "hidden": [2], "batch_size": 4})", 0,
      2);
  request.data_dir = data.path();
  std::atomic<bool> stop = false;
  FitOptions options{.out_dir = scratch / "fit", .stop = &stop};
  options.on_progress = [&](const FitProgress& progress) {
    if (progress.phase != "measuring") stop = true;
  };
  REQUIRE(RunFit(request, Start(), options).interrupted);
  stop = false;
  options.on_progress = {};
  options.existing = ExistingFit::kResume;
  WriteCsvDigits(data.path(), 2);
  CHECK(ErrorOf([&] {
          RunFit({}, Start(), options);
        }).starts_with("cannot resume " + (scratch / "fit") + ": it was computed on csv "));
  // An earlier version did not note the data.
  auto record = ReadRecordFile<FitRecord>(scratch / "fit/fit.json");
  REQUIRE(record.data);
  const std::string noted = std::exchange(record.data, std::nullopt).value();
  WriteRecordFile(scratch / "fit/fit.json", record);
  CHECK_FALSE(RunFit({}, Start(), options).interrupted);
  CHECK(noted.starts_with("csv "));
}

TEST_CASE("What cannot be done is an error that says what can") {
  const TempDirectory scratch;
  const auto error = [&](const FitRequest& request, const ThetaFile& start = Start()) {
    return ErrorOf([&] { RunFit(request, start, {.out_dir = scratch / "fit"}); });
  };
  FitRequest request = Request(kBowl, 2, 2);
  request.steps = 19;
  CHECK_EQ(error(request), "fit: wanted at least 20 steps, got 19");
  request = Request(kBowl, 2, 2);
  request.seeds = 2;
  CHECK_EQ(error(request), "fit: wanted at least 3 seeds, got 2");
  request.seeds = 10001;
  CHECK_EQ(error(request), "fit: wanted at most 10000 seeds, got 10001");
  request = Request(kBowl, 2, 2);
  request.seed = -1;
  CHECK_EQ(error(request), "fit: seed must be at least 0, got -1");
  request = Request(kBowl, 2, 2);
  request.data_dir = scratch / "data";
  CHECK_EQ(error(request),
           "fit: data_dir is " + scratch / "data" + ", but the task reads nothing from it");
  CHECK_EQ(ErrorOf([&] {
             RunFit(Request(kBowl, 2, 2), Start(), {.out_dir = scratch / "fit", .threads = 0});
           }),
           "fit: threads must be between 1 and 1024, got 0");
  request = Request(kBowl, 2, 1);
  CHECK_EQ(error(request), "fit: trials must be between 2 and 10000, got 1");
  request.trials = {};
  CHECK_EQ(error(request), "fit: wanted minutes, or both updates and trials, to know when to end");
  ThetaFile other{.learned_optimizer = Config::Parse(R"({"type": "MLPLOpt"})", "test"),
                  .theta = {}};
  other.theta = OptimizerRegistry().Make(other.learned_optimizer)->InitTheta(KeyFromSeed(1));
  CHECK_EQ(error(Request(kBowl, 2, 2), other),
           "fit: wanted to start from a LearnedScheduler, such as recommended or fast, got "
           "MLPLOpt");
  request = Request(kBowl, 2, 2);
  request.updates = {};
  request.minutes = 1e-6;
  const std::string too_few = error(request);
  CHECK(too_few.starts_with("fit: to measure how fast the task is trained took "));
  CHECK(Has(too_few, " s, so that 1e-06 minutes are too few: give at least 1"));
  // One that got no further may be begun anew without a word.
  CHECK_EQ(error(Request(kBowl, 0, 2)), "no error");
  CHECK(
      Has(error(Request(kBowl, 0, 2)), "/fit holds a fit already: resume it (--resume), replace"));
  // What is not a fit's stays.
  for (const char* file : {"start.safetensors", "theta.safetensors", "compare/notes.txt"}) {
    const std::string path = scratch / "another/" + file;
    MakeDirectories(path.substr(0, path.rfind('/')));
    WriteTextFile(path, "not a fit's");
    CHECK(Has(ErrorOf([&] {
                RunFit(Request(kBowl, 0, 2), Start(),
                       {.out_dir = scratch / "another", .existing = ExistingFit::kReplace});
              }),
              "/another holds no fit, but something called "));
    CHECK(Exists(path));
    RemoveMatching(scratch / "another", [](std::string_view) { return true; });
  }
  CHECK(Has(ErrorOf([&] {
              RunFit({}, Start(), {.out_dir = scratch / "none", .existing = ExistingFit::kResume});
            }),
            "/none holds no fit (there is no "));
}

// --- The program
// ----------------------------------------------------------------------------------

using Words = std::vector<std::string>;

FinishedProcess Fit(const Words& arguments,
                    const std::function<void(pid_t, const std::string&)>& on_output = {}) {
  Words words = {BuildPath("lopt"), "fit"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProcess(words, on_output);
}

TEST_CASE("The program fits, tells how it goes, and ends with a table and a verdict") {
  const TempDirectory scratch;
  const Words words = {kBowl,       "--steps", "24",
                       "--updates", "2",       "--trials",
                       "2",         "--start", SourcePath("trained/recommended.safetensors")};
  Words plain = words;
  plain.insert(plain.end(), {"--out", scratch / "whole"});
  const FinishedProcess whole = Fit(plain);
  CAPTURE(whole.errors);
  REQUIRE_EQ(whole.exit_code, 0);
  CHECK(Has(whole.output, "meta-training"));
  CHECK(Has(whole.output, " left\n"));
  CHECK(Has(whole.output, "random-search"));
  CHECK(Has(whole.output, "/whole/theta.safetensors\n"));
  const auto record = ReadRecordFile<FitRecord>(scratch / "whole/fit.json");
  CHECK_EQ(record.status, "finished");
  REQUIRE_FALSE(record.verdict.empty());
  CHECK(ReadTextFile(scratch / "whole/report.txt").ends_with("\n\n" + record.verdict + "\n"));

  // Ctrl-C, and on.
  Words stopped = words;
  stopped.insert(stopped.end(), {"--out", scratch / "parts", "--threads", "1"});
  bool sent = false;
  const FinishedProcess first = Fit(stopped, [&](pid_t child, const std::string& output) {
    if (sent || !Has(output, "step sizes")) return;
    kill(child, SIGINT);
    sent = true;
  });
  CHECK_EQ(first.exit_code, 75);
  CHECK(Has(first.output, "Stopped. The best weights so far are in "));
  CHECK(Has(first.output,
            "  lopt fit --resume --out " + ShellQuoted(scratch / "parts") + " --threads 1\n"));
  CHECK_EQ(Fit({kBowl, "--resume", "--out", scratch / "parts"}).exit_code, 2);
  REQUIRE_EQ(Fit({"--resume", "--out", scratch / "parts"}).exit_code, 0);
  CHECK(ReadThetaFile(scratch / "parts/theta.safetensors").theta ==
        ReadThetaFile(scratch / "whole/theta.safetensors").theta);
}

TEST_CASE("Without a task the program says what it wants") {
  const FinishedProcess finished = Fit({});
  CHECK_EQ(finished.exit_code, 2);
  CHECK(Has(finished.errors, "There is no TASK; wanted lopt fit TASK [OPTIONS]"));
}

}  // namespace
}  // namespace lopt
