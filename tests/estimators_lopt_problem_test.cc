#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/describe_fields.h"
#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/parallel.h"
#include "lopt/base/safetensors.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/estimators/replica_keys.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/lopt/rules/learned_scheduler.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "tests/error_of.h"
#include "tests/noting_types.h"
#include "tests/row_task.h"
#include "toy_problem.h"

namespace lopt {
namespace {

// x^2 from x = 1, without data. From inner step `bad_from` on of any episode (counted by the
// parameter's own decay) nothing is special: see BadTask.
class UnitQuadratic : public TaskFamily {
 public:
  UnitQuadratic() : TaskFamily({.params = Layout({{"x", Shape{}}})}) {}

 private:
  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    params[0] = 1;
  }
  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    for (int64_t r = 0; r < e.rows; ++r) {
      e.losses[r] = e.params[r] * e.params[r];
      if (!e.gradients.empty()) {
        e.gradients[r] = 2 * e.params[r];
      }
    }
  }
};

// Its loss is NaN for tasks whose config is above 0 and 1 for others; optionally with a normalizer
// that has a maximum.
class BadTask : public TaskFamily {
 public:
  explicit BadTask(bool bounded)
      : TaskFamily({.config = Layout({{"bad", Shape{}}}),
                    .params = Layout({{"x", Shape{}}}),
                    .normalizer_maximum = bounded ? std::optional<double>(5.0) : std::nullopt}) {}

 private:
  void DoSample(Key key, std::span<float> config) const override { Normal(key, config); }
  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    params[0] = 0;
  }
  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    for (int64_t r = 0; r < e.rows; ++r) {
      e.losses[r] = e.config[r] > 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
      if (!e.gradients.empty()) {
        e.gradients[r] = 0;
      }
    }
  }
};

std::shared_ptr<TruncationSchedule> Constant(int64_t length) {
  return std::make_shared<ConstantTruncationSchedule>(
      ConstantTruncationSchedule::Options{.total_length = length});
}

std::shared_ptr<LearnedOptimizer> Sgd() {
  return std::make_shared<LearnableSGD>(LearnableSGDOptions{.learning_rate = 0.05});
}

// A run of plain theta (no perturbations) with one key for each replica.
UnrollTrace RunPlain(const LoptProblem& problem, const Eigen::VectorXf& theta, int64_t steps,
                     UnrollState* state, uint64_t seed = 5) {
  const auto rows = state->At("inner_step").size();
  UnrollTrace trace;
  const std::vector<Key> keys = SplitKey(KeyFromSeed(seed), rows);
  problem.Run({.theta = {.theta = AsSpan(theta), .rows = rows},
               .keys = keys,
               .steps = steps,
               .state = state,
               .trace = &trace});
  return trace;
}

// Fresh replicas under the optimizer's initial theta.
UnrollState Start(const LoptProblem& problem, int64_t replicas, Key key = {},
                  std::optional<int64_t> horizon = {}) {
  const Eigen::VectorXf theta = problem.optimizer().InitTheta(KeyFromSeed(3));
  return problem.Start({.theta = AsSpan(theta), .rows = replicas}, {}, SplitKey(key, replicas),
                       horizon);
}

TEST_CASE("The meta-loss is the loss before the update, or after it on the same data") {
  const auto task = std::make_shared<UnitQuadratic>();
  const Eigen::VectorXf theta = Sgd()->InitTheta({});
  const LoptProblem before(task, Sgd(), Constant(5), {});
  UnrollState state = Start(before, 1);
  const UnrollTrace trace = RunPlain(before, theta, 2, &state);
  CHECK(trace.loss(0, 0) == 1.0);
  CHECK(trace.loss(1, 0) == doctest::Approx(0.81).epsilon(1e-6));
  const LoptProblem after(task, Sgd(), Constant(5), {.meta_loss = MetaLoss::kSameData});
  state = Start(after, 1);
  CHECK(RunPlain(after, theta, 1, &state).loss(0, 0) == doctest::Approx(0.81).epsilon(1e-6));
}

TEST_CASE("The meta-loss can be the logarithm of the loss, down to a floor") {
  const Eigen::VectorXf theta = Sgd()->InitTheta({});
  const auto losses = [&](std::shared_ptr<const TaskFamily> task, double floor) {
    const LoptProblem problem(std::move(task), Sgd(), Constant(5), {.meta_loss_log = floor});
    UnrollState state = Start(problem, 20);
    const Eigen::ArrayXXd loss = RunPlain(problem, theta, 2, &state).loss;
    CHECK(problem.MetaLossSlope(std::log(floor)) == 0);
    CHECK(problem.MetaLossSlope(std::log(2 * floor)) == doctest::Approx(1 / (2 * floor)));
    CHECK(problem.MetaLossSlope(std::numeric_limits<double>::quiet_NaN()) == 0);
    return loss;
  };
  const auto task = std::make_shared<UnitQuadratic>();
  CHECK(losses(task, 0.5)(0, 0) == 0.0);
  CHECK(losses(task, 0.5)(1, 0) == doctest::Approx(std::log(0.81)).epsilon(1e-6));
  CHECK(losses(task, 0.9)(1, 0) == std::log(0.9));
  // Losses that are not finite are the normalizer's maximum, 5, where it has one.
  const Eigen::ArrayXXd bounded = losses(std::make_shared<BadTask>(true), 0.5);
  CHECK(((bounded == 0.0) || (bounded == std::log(5.0))).all());
  CHECK((bounded == 0.0).any());
  CHECK((bounded == std::log(5.0)).any());
  const Eigen::ArrayXXd unbounded = losses(std::make_shared<BadTask>(false), 0.5);
  CHECK(((unbounded == 0.0) || unbounded.isNaN()).all());
  CHECK(unbounded.isNaN().any());
  CHECK_THROWS_WITH_AS(LoptProblem(task, Sgd(), Constant(5), {.meta_loss_log = 0.0}),
                       "inner problem: meta_loss_log must be above 0, got 0", Error);
}

TEST_CASE("A meta_loss_aux that the task lacks is refused beside those that it has") {
  CHECK_THROWS_WITH_AS(
      LoptProblem(std::make_shared<UnitQuadratic>(), Sgd(), Constant(5), {.meta_loss_aux = "hits"}),
      "inner problem: meta_loss_aux is 'hits'; aux outputs of the task: none", Error);
}

// What a window of 12 steps of 5 replicas notes, in episodes of 5 steps.
UnrollTrace NotingWindow(
    const LoptProblemOptions& options, int64_t group = 1,
    std::shared_ptr<const LearnedOptimizer> optimizer = std::make_shared<NotingSgd>()) {
  const LoptProblem problem(std::make_shared<NotingTask>("step", "draw", group),
                            std::move(optimizer), Constant(5), options);
  UnrollState state = Start(problem, 5);
  return RunPlain(problem, problem.optimizer().InitTheta({}), 12, &state);
}

TEST_CASE("With metrics a window notes the aux outputs and the optimizer's numbers of each step") {
  const std::vector<Key> keys = SplitKey(KeyFromSeed(5), 5);
  for (const MetaLoss meta_loss :
       {MetaLoss::kBeforeUpdate, MetaLoss::kSameData, MetaLoss::kTrain}) {
    const UnrollTrace trace = NotingWindow({.meta_loss = meta_loss, .with_metrics = true});
    REQUIRE(trace.noted.size() == 3);
    CHECK(trace.noted[0].name == "task/step");
    CHECK(trace.noted[1].name == "task/draw");
    CHECK(trace.noted[2].name == "optimizer/updates");
    for (int64_t b = 0; b < 5; ++b) {
      for (int64_t k = 0; k < 12; ++k) {
        const EpisodeKeys of = KeysOfEpisode(keys[b], k / 5, 0);
        const Key batch = meta_loss == MetaLoss::kTrain ? of.meta_data : of.data;
        CHECK(trace.noted[0].values(k, b) == static_cast<float>(k % 5));
        CHECK(trace.noted[1].values(k, b) ==
              NotedDraw(FoldIn(batch, static_cast<uint64_t>(k % 5))));
        CHECK(trace.noted[2].values(k, b) == static_cast<float>(k % 5 + 1));
      }
    }
  }
}

TEST_CASE("What an optimizer inside others notes is noted, too") {
  const auto inside =
      std::make_shared<LearnedScheduler>(LearnedSchedulerOptions(), std::make_shared<NotingSgd>());
  const UnrollTrace trace =
      NotingWindow({.with_metrics = true}, 1,
                   std::make_shared<LearnedScheduler>(LearnedSchedulerOptions(), inside));
  REQUIRE(trace.noted.size() == 3);
  CHECK(trace.noted[2].name == "optimizer/updates");
  for (int64_t k = 0; k < 12; ++k) {
    CHECK((trace.noted[2].values.row(k) == static_cast<float>(k % 5 + 1)).all());
  }
}

struct NoOptions {
  void Visit(FieldVisitor&) {}
};

TEST_CASE("What is noted inside any type that is over others makes metrics") {
  OptimizerRegistry().Add<NoOptions>("NotingInside", "For this test.", [](const NoOptions&) {
    return std::make_shared<NotingSgd>();
  });
  const TypeTable& types = OptimizerRegistry().table();
  int over_others = 0;
  for (const TypeEntry& entry : types.entries()) {
    CAPTURE(entry.type);
    Config config = Config::Parse(fmt::format(R"({{"type": "{}"}})", entry.type), "test");
    std::vector<std::string> wanted;
    for (const FieldRow& row :
         FieldRows(entry.fields, [](const TypeTable& of) { return "one of " + of.kind(); })) {
      if (!row.value.ends_with("one of " + types.kind())) continue;
      const std::string option = row.key.substr(1, row.key.size() - 2);  // without `
      config = config.With(option, R"({"type": "NotingInside"})");
      wanted.push_back("optimizer/" + (option == "optimizer" ? "" : option + ".") + "updates");
    }
    if (wanted.empty()) continue;
    ++over_others;
    const LoptProblem problem(std::make_shared<NotingTask>("step", "draw"),
                              OptimizerRegistry().Make(config), Constant(5),
                              {.with_metrics = true});
    UnrollState state = Start(problem, 2);
    std::vector<std::string> noted;
    for (const auto& note : RunPlain(problem, problem.optimizer().InitTheta({}), 3, &state).noted) {
      if (note.name.starts_with("optimizer/")) noted.push_back(note.name);
    }
    CHECK(noted == wanted);
  }
  CHECK(over_others == 4);  // LearnedScheduler, MatricesAndVectors, OrthogonalSteps, UnknownLength
}

TEST_CASE("What is noted depends neither on groups nor on threads, and losses not on noting") {
  const UnrollTrace expected = NotingWindow({.with_metrics = true});
  const UnrollTrace without = NotingWindow({});
  CHECK(without.noted.empty());
  CHECK((without.loss == expected.loss).all());
  ThreadPool(3).Run([&] {
    for (const int64_t group : {int64_t{2}, TaskFamily::kAllRows}) {
      const UnrollTrace trace = NotingWindow({.with_metrics = true}, group);
      for (size_t i = 0; i < 3; ++i) {
        CHECK((trace.noted[i].values == expected.noted[i].values).all());
      }
    }
  });
  // Together with an aux output that is the meta-loss.
  const UnrollTrace of_aux = NotingWindow({.meta_loss_aux = "draw", .with_metrics = true});
  CHECK((of_aux.loss == of_aux.noted[1].values.cast<double>()).all());
}

TEST_CASE("With metrics there must be something to note, under the name of a metric") {
  const auto error = [](std::shared_ptr<const TaskFamily> task,
                        std::shared_ptr<const LearnedOptimizer> optimizer) {
    return ErrorOf([&] {
      const LoptProblem problem(std::move(task), std::move(optimizer), Constant(5),
                                {.with_metrics = true});
    });
  };
  CHECK(error(std::make_shared<UnitQuadratic>(), Sgd()) ==
        "inner problem: with_metrics is true, but the task has no aux outputs and the optimizer's "
        "state no scalars named noted/NAME");
  CHECK(error(std::make_shared<NotingTask>("a b"), Sgd()) ==
        "inner problem: with_metrics would make a metric task/NAME of 'a b'; wanted a name of 1 to "
        "100 letters, digits, '_', '-' and '.'");
  CHECK(error(std::make_shared<NotingTask>("a/b"), Sgd()).find("of 'a/b'") != std::string::npos);
  CHECK(error(std::make_shared<NotingTask>(std::string(101, 'a')), Sgd()) != "no error");
  CHECK(error(std::make_shared<NotingTask>(std::string(100, 'a')), Sgd()) == "no error");
  CHECK(error(std::make_shared<UnitQuadratic>(), std::make_shared<NotingSgd>("noted/")) ==
        "inner problem: with_metrics would make a metric optimizer/NAME of ''; wanted a name of 1 "
        "to 100 letters, digits, '_', '-' and '.'");
  CHECK(error(std::make_shared<UnitQuadratic>(),
              std::make_shared<NotingSgd>("noted/both", Shape{2})) ==
        "inner problem: with_metrics notes numbers, and 'noted/both' has shape [2]; wanted a "
        "scalar");
  CHECK(error(std::make_shared<UnitQuadratic>(), std::make_shared<NotingSgd>()) == "no error");
}

TEST_CASE("An episode restarts at once after its last loss") {
  const LoptProblem problem(std::make_shared<UnitQuadratic>(), Sgd(), Constant(5), {});
  UnrollState state = Start(problem, 1);
  const UnrollTrace trace = RunPlain(problem, Sgd()->InitTheta({}), 12, &state);
  for (int64_t k = 0; k < 12; ++k) {
    CAPTURE(k);
    CHECK(trace.iteration(k, 0) == k % 5);
    CHECK(trace.is_last(k, 0) == (k % 5 == 4));
    CHECK(trace.loss(k, 0) == trace.loss(k % 5, 0));
  }
  CHECK(state.At("episode").As<int64_t>()[0] == 2);
  CHECK(state.At("inner_step").As<int64_t>()[0] == 2);
}

// The rows of pairs that make `windows` windows of `steps` steps, each under keys of its own.
UnrollTrace RowsOfEpochs(const LoptProblem& problem, int64_t windows, int64_t steps,
                         UnrollState* state) {
  const Eigen::VectorXf theta = Sgd()->InitTheta({});
  UnrollTrace all;
  all.Resize(windows * steps, 2);
  for (int64_t window = 0; window < windows; ++window) {
    UnrollTrace trace;
    const Key key = FoldIn(KeyFromSeed(5), static_cast<uint64_t>(window));
    problem.Run({.theta = {.theta = AsSpan(theta), .rows = 2},
                 .keys = std::vector<Key>{key, key},
                 .steps = steps,
                 .state = state,
                 .trace = &trace});
    all.loss.middleRows(window * steps, steps) = trace.loss;
  }
  return all;
}

UnrollState StartPairs(const LoptProblem& problem) {
  const Eigen::VectorXf theta = Sgd()->InitTheta({});
  return problem.Start({.theta = AsSpan(theta), .rows = 2}, {},
                       std::vector<Key>{KeyFromSeed(4), KeyFromSeed(4)});
}

TEST_CASE("An episode goes on through its epochs from window to window, both replicas alike") {
  for (const int64_t group : {int64_t{1}, TaskFamily::kAllRows}) {
    const LoptProblem problem(std::make_shared<RowTask>(7, 1, Sampling::kEpoch, group), Sgd(),
                              Constant(21), {});
    UnrollState state = StartPairs(problem);
    const UnrollTrace trace = RowsOfEpochs(problem, 14, 3, &state);
    std::set<std::vector<double>> epochs;
    for (int64_t epoch = 0; epoch < 6; ++epoch) {
      std::vector<double> rows(trace.loss.col(0).data() + 7 * epoch,
                               trace.loss.col(0).data() + 7 * epoch + 7);
      epochs.insert(rows);
      std::ranges::sort(rows);
      CHECK(rows == std::vector<double>{0, 1, 2, 3, 4, 5, 6});
    }
    CHECK(epochs.size() == 6);
    CHECK((trace.loss.col(0) == trace.loss.col(1)).all());
  }
}

TEST_CASE("A state that is kept inside an epoch goes on with the rest of it") {
  const LoptProblem problem(std::make_shared<RowTask>(7, 1, Sampling::kEpoch), Sgd(), Constant(20),
                            {});
  UnrollState state = StartPairs(problem);
  const UnrollTrace first = RowsOfEpochs(problem, 1, 4, &state);
  UnrollState kept =
      ParseArrayFile(SerializeArrayFile({.arrays = state, .metadata = {}}), "kept").arrays;
  const UnrollTrace rest = RowsOfEpochs(problem, 1, 3, &kept);
  std::set<double> rows(first.loss.col(0).begin(), first.loss.col(0).end());
  rows.insert(rest.loss.col(0).begin(), rest.loss.col(0).end());
  CHECK(rows.size() == 7);
  CHECK((RowsOfEpochs(problem, 1, 3, &state).loss == rest.loss).all());
}

TEST_CASE("The meta-loss of a split goes through that split by epochs of its own") {
  const LoptProblem problem(std::make_shared<RowTask>(7, 1, Sampling::kEpoch), Sgd(), Constant(70),
                            {.meta_loss = MetaLoss::kTrain});
  const LoptProblem training(std::make_shared<RowTask>(7, 1, Sampling::kEpoch), Sgd(), Constant(70),
                             {});
  UnrollState state = StartPairs(problem);
  UnrollState same = StartPairs(training);
  const UnrollTrace trace = RowsOfEpochs(problem, 1, 7, &state);
  CHECK(std::set<double>(trace.loss.col(0).begin(), trace.loss.col(0).end()).size() == 7);
  CHECK_FALSE((trace.loss == RowsOfEpochs(training, 1, 7, &same).loss).all());
}

TEST_CASE("A horizon replaces the schedule and nothing restarts") {
  const LoptProblem problem(std::make_shared<UnitQuadratic>(), Sgd(),
                            std::make_shared<NeverEndingTruncationSchedule>(), {});
  CHECK_FALSE(problem.EpisodesEnd());
  UnrollState state = Start(problem, 1, {}, 3);
  const UnrollTrace trace = RunPlain(problem, Sgd()->InitTheta({}), 4, &state);
  CHECK_FALSE(trace.is_last(1, 0));
  CHECK(trace.is_last(2, 0));
  CHECK(trace.iteration(3, 0) == 3);
}

TEST_CASE(
    "Offsets shorten the first episode only, and leave params and the optimizer's step at their "
    "start") {
  const LoptProblem problem(std::make_shared<UnitQuadratic>(), Sgd(), Constant(10),
                            {.random_initial_iteration_offset = 10});
  UnrollState state = Start(problem, 500, KeyFromSeed(2));
  std::vector<int64_t> seen(11);
  for (int64_t b = 0; b < 500; ++b) {
    ++seen[state.At("length").As<int64_t>()[b]];
    CHECK(state.At("inner_step").As<int64_t>()[b] == 0);
    CHECK(state.At("params").As<float>()[b] == 1);
  }
  CHECK(seen[0] == 0);
  for (int64_t length = 1; length <= 10; ++length) {
    CHECK(seen[length] > 20);  // 50 expected
  }
  RunPlain(problem, Sgd()->InitTheta({}), 10, &state);
  for (const int64_t length : state.At("length").As<int64_t>()) {
    CHECK(length == 10);
  }
}

TEST_CASE("Offsets can be multiples, and after burn-in tasks stand at these steps of episodes") {
  const auto problem =
      std::make_shared<LoptProblem>(std::make_shared<UnitQuadratic>(), Sgd(), Constant(10),
                                    LoptProblemOptions{.random_initial_iteration_offset = 9,
                                                       .random_initial_iteration_multiple = 4});
  std::vector<int64_t> seen(11);
  const UnrollState start = Start(*problem, 300, KeyFromSeed(2));
  for (const int64_t length : start.At("length").As<int64_t>()) ++seen[length];
  for (const int64_t length : {10, 6, 2}) CHECK(seen[length] > 70);  // 100 expected
  CHECK(seen[10] + seen[6] + seen[2] == 300);

  const TruncatedNRES estimator(problem,
                                {.num_tasks = 300, .trunc_length = 5, .std = 0.01, .burn_in = 10});
  const EstimatorState state =
      estimator.InitWorkerState({.theta = Sgd()->InitTheta({}), .outer = {}}, KeyFromSeed(2));
  for (int64_t n = 0; n < 300; ++n) {
    const int64_t step = state.At("unroll/inner_step").As<int64_t>()[n];
    CHECK(step == 10 - start.At("length").As<int64_t>()[n]);
    CHECK(state.At("unroll/length").As<int64_t>()[n] == 10);
    // Each of the present episode's steps has been made.
    CHECK(state.At("unroll/params").As<float>()[n] ==
          doctest::Approx(std::pow(0.9, static_cast<double>(step))).epsilon(0.05));
  }
}

TEST_CASE("Unlocked tasks give the mean over an episode in every window, from the first on") {
  const auto problem =
      std::make_shared<LoptProblem>(std::make_shared<UnitQuadratic>(), Sgd(), Constant(10),
                                    LoptProblemOptions{.random_initial_iteration_offset = 10,
                                                       .random_initial_iteration_multiple = 5});
  const TruncatedNRES estimator(problem,
                                {.num_tasks = 4000, .trunc_length = 5, .std = 0.1, .burn_in = 10});
  const WorkerWeights weights{.theta = Sgd()->InitTheta({}), .outer = {}};
  Statistics first;
  Statistics second;
  for (uint64_t run = 0; run < 12; ++run) {
    const Key key = FoldIn(KeyFromSeed(31), run);
    EstimatorState state = estimator.InitWorkerState(weights, key);
    first.Add(estimator.Estimate(weights, FoldIn(key, 1), &state).gradient(0));
    second.Add(estimator.Estimate(weights, FoldIn(key, 2), &state).gradient(0));
  }
  for (const Statistics& window : {first, second}) {
    CAPTURE(window.Mean());
    CAPTURE(window.StandardError());
    CHECK(std::abs(window.Mean() - -.294510972794) < 4 * window.StandardError());
    CHECK(window.StandardError() < .005);
  }
}

TEST_CASE("An offset that is longer than the episode leaves it one step") {
  const LoptProblem problem(std::make_shared<UnitQuadratic>(), Sgd(), Constant(3),
                            {.random_initial_iteration_offset = 1000});
  const UnrollState state = Start(problem, 200, KeyFromSeed(2));
  for (const int64_t length : state.At("length").As<int64_t>()) {
    CHECK(length >= 1);
  }
}

struct Quadratics {
  LoptProblem problem{std::make_shared<FixedDimQuadraticFamily>(QuadraticOptions{}),
                      std::make_shared<MLPLOpt>(),
                      std::make_shared<LogUniformLengthSchedule>(
                          LogUniformLengthSchedule::Options{.min_length = 5, .max_length = 40}),
                      {.random_initial_iteration_offset = 20}};
  Eigen::VectorXf theta = MLPLOpt().InitTheta(KeyFromSeed(3));
};

TEST_CASE(
    "Fifty steps are twenty-five twice, bit for bit, and a saved state goes on as if nothing had "
    "happened") {
  const Quadratics q;
  UnrollState whole = Start(q.problem, 7, KeyFromSeed(4));
  UnrollState halves = whole;
  const UnrollTrace trace = RunPlain(q.problem, q.theta, 50, &whole);
  const UnrollTrace first = RunPlain(q.problem, q.theta, 25, &halves);
  UnrollState restored = halves;
  const UnrollTrace second = RunPlain(q.problem, q.theta, 25, &restored);
  CHECK(restored == whole);
  CHECK((trace.loss.topRows(25) == first.loss).all());
  CHECK((trace.loss.bottomRows(25) == second.loss).all());
  CHECK((trace.is_last.bottomRows(25) == second.is_last).all());
  CHECK(trace.is_last.any());
}

TEST_CASE("The bits do not depend on the threads") {
  const Quadratics q;
  UnrollState one = Start(q.problem, 9, KeyFromSeed(4));
  UnrollState eight = one;
  const UnrollTrace expected = RunPlain(q.problem, q.theta, 50, &one);
  ThreadPool pool(8);
  pool.Run([&] { CHECK((RunPlain(q.problem, q.theta, 50, &eight).loss == expected.loss).all()); });
  CHECK(one == eight);
}

// Quadratics that are advanced in lockstep by groups.
class GroupedQuadratics : public FixedDimQuadraticFamily {
 public:
  explicit GroupedQuadratics(int64_t rows)
      : FixedDimQuadraticFamily(QuadraticOptions{}), rows_(rows) {}
  int64_t PreferredRows() const override { return rows_; }

 private:
  int64_t rows_;
};

TEST_CASE("The bits do not depend on how replicas are grouped") {
  const Eigen::VectorXf theta = MLPLOpt().InitTheta(KeyFromSeed(3));
  const auto run = [&](int64_t group, UnrollState* state) {
    const LoptProblem problem(std::make_shared<GroupedQuadratics>(group),
                              std::make_shared<MLPLOpt>(), Constant(13), {});
    *state = Start(problem, 7, KeyFromSeed(4));
    return RunPlain(problem, theta, 40, state);
  };
  UnrollState alone;
  const UnrollTrace expected = run(1, &alone);
  ThreadPool pool(3);
  pool.Run([&] {
    for (const int64_t group : {int64_t{2}, int64_t{3}, int64_t{100}, TaskFamily::kAllRows}) {
      CAPTURE(group);
      UnrollState grouped;
      CHECK((run(group, &grouped).loss == expected.loss).all());
      CHECK(grouped == alone);
    }
  });
}

TEST_CASE("Pairs without a perturbation stay equal, and pairs equal separate replicas") {
  const Quadratics q;
  const std::vector<Key> start_keys = SplitKey(KeyFromSeed(4), 3);
  const std::vector<Key> keys = SplitKey(KeyFromSeed(9), 3);
  const auto twice = [](std::vector<Key> of) {
    of.insert(of.end(), of.begin(), of.begin() + 3);
    return of;
  };
  const auto run = [&](const Perturbations& perturbations) {
    const ThetaRows rows{.theta = AsSpan(q.theta), .rows = 6, .perturbations = &perturbations};
    UnrollState state = q.problem.Start(rows, {}, twice(start_keys));
    UnrollTrace trace;
    const std::vector<Key> twin_keys = twice(keys);
    q.problem.Run(
        {.theta = rows, .keys = twin_keys, .steps = 60, .state = &state, .trace = &trace});
    return trace;
  };
  const auto dimension = q.theta.size();
  const UnrollTrace equal = run({SplitKey(KeyFromSeed(6), 3), 0, dimension});
  CHECK((equal.loss.leftCols(3) == equal.loss.rightCols(3)).all());
  CHECK((equal.is_last.leftCols(3) == equal.is_last.rightCols(3)).all());

  const Perturbations perturbations(SplitKey(KeyFromSeed(6), 3), 0.01, dimension);
  const UnrollTrace replicas = run(perturbations);
  CHECK_FALSE((replicas.loss.leftCols(3) == replicas.loss.rightCols(3)).all());
  for (int64_t n = 0; n < 3; ++n) {
    for (const float sign : {1.0F, -1.0F}) {
      const Eigen::VectorXf theta = q.theta + sign * Eigen::Map<const Eigen::VectorXf>(
                                                         perturbations.Row(n).data(), dimension);
      const ThetaRows row{.theta = AsSpan(theta), .rows = 1};
      UnrollState state = q.problem.Start(row, {}, {&start_keys[n], 1});
      UnrollTrace trace;
      q.problem.Run(
          {.theta = row, .keys = {&keys[n], 1}, .steps = 60, .state = &state, .trace = &trace});
      CHECK((trace.loss.col(0) == replicas.loss.col(sign > 0 ? n : n + 3)).all());
    }
  }
}

// Params and state are what theta says: x starts at the state's number, which is theta_0, and each
// update adds theta_1.
class FromTheta : public LearnedOptimizer {
 public:
  FromTheta() : LearnedOptimizer(Layout({{"start", Shape{}}, {"step", Shape{}}})) {}

 private:
  class Rule : public UpdateRule {
   public:
    Rule(const Layout& params, std::span<const float> theta)
        : UpdateRule(params, Layout({{"sum", Shape{}}})), start_(theta[0]), step_(theta[1]) {}

   private:
    void DoInitState(const StepInfo&, std::span<const float>,
                     std::span<float> state) const override {
      state[0] = start_;
    }
    void DoUpdate(const StepInfo&, std::span<const float>, std::span<float> params,
                  std::span<float> state, Workspace&) const override {
      params[0] = state[0];
      state[0] += step_;
    }
    float start_;
    float step_;
  };
  void DoInitTheta(Key, std::span<float> theta) const override { std::ranges::fill(theta, 0.0F); }
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override {
    return std::make_unique<Rule>(params, theta);
  }
};

TEST_CASE("An optimizer's initial state is that of its replica's own row of theta") {
  const LoptProblem problem(std::make_shared<UnitQuadratic>(), std::make_shared<FromTheta>(),
                            Constant(3), {});
  const std::vector<float> theta = {2, 10};
  const Perturbations perturbations(SplitKey(KeyFromSeed(1), 1), 0.5, 2);
  const std::span<const float> eps = perturbations.Row(0);
  const ThetaRows rows{.theta = theta, .rows = 2, .perturbations = &perturbations};
  const std::vector<Key> keys(2);
  UnrollState state = problem.Start(rows, {}, keys);
  CHECK(state.At("optimizer_state").As<float>()[0] == 2 + eps[0]);
  CHECK(state.At("optimizer_state").As<float>()[1] == 2 - eps[0]);
  UnrollTrace trace;
  problem.Run({.theta = rows, .keys = keys, .steps = 6, .state = &state, .trace = &trace});
  for (int64_t k = 0; k < 6; ++k) {
    const auto squared = [](float x) { return static_cast<double>(x * x); };
    const auto at = [&](float sign) {
      float x = 2 + sign * eps[0];
      for (int64_t i = 1; i < k % 3; ++i) x += 10 + sign * eps[1];
      return k % 3 == 0 ? 1.0 : squared(x);
    };
    CHECK(trace.loss(k, 0) == at(1));
    CHECK(trace.loss(k, 1) == at(-1));
  }
}

// x is the length of the run that its initial state was told.
class InitialLength : public LearnedOptimizer {
 public:
  InitialLength() : LearnedOptimizer(Layout({{"nothing", Shape{}}})) {}

 private:
  class Rule : public UpdateRule {
   public:
    explicit Rule(const Layout& params) : UpdateRule(params, Layout({{"length", Shape{}}})) {}

   private:
    void DoInitState(const StepInfo& info, std::span<const float>,
                     std::span<float> state) const override {
      state[0] = static_cast<float>(info.num_steps);
    }
    void DoUpdate(const StepInfo&, std::span<const float>, std::span<float> params,
                  std::span<float> state, Workspace&) const override {
      params[0] = state[0];
    }
  };
  void DoInitTheta(Key, std::span<float> theta) const override { std::ranges::fill(theta, 0.0F); }
  std::unique_ptr<UpdateRule> DoBind(const Layout& params, std::span<const float>) const override {
    return std::make_unique<Rule>(params);
  }
};

TEST_CASE("An optimizer's initial state is told the length of its episode, 0 where it has no end") {
  // After so many steps.
  const auto told = [](const std::shared_ptr<TruncationSchedule>& schedule, int64_t steps,
                       std::optional<int64_t> horizon = {}, int64_t offset = 0) {
    const LoptProblem problem(std::make_shared<UnitQuadratic>(), std::make_shared<InitialLength>(),
                              schedule, {.random_initial_iteration_offset = offset});
    UnrollState state = Start(problem, 1, {}, horizon);
    if (steps > 0) RunPlain(problem, Eigen::VectorXf::Zero(1), steps, &state);
    return state.At("optimizer_state").As<float>()[0];
  };
  const auto never = std::make_shared<NeverEndingTruncationSchedule>();
  for (const int64_t steps : {0, 1, 5, 8}) {
    CHECK(told(Constant(7), steps) == 7);
    CHECK(told(Constant(7), steps, 9) == 9);
    CHECK(told(never, steps) == 0);
  }
  // The first episode is shorter, of one step, and another follows.
  CHECK(told(Constant(2), 0, {}, 1 << 20) == 1);
  CHECK(told(Constant(2), 1, {}, 1 << 20) == 2);
}

TEST_CASE("PES has the gradient through an initial state that is made from theta") {
  // Losses 1, s^2, (s + d)^2, ..., (s + 4 d)^2 of theta = (s, d): the mean's gradient is
  // (5 s + 10 d, 10 s + 30 d) / 3, and a quadratic's is not smoothed by the perturbations.
  const auto problem = std::make_shared<LoptProblem>(std::make_shared<UnitQuadratic>(),
                                                     std::make_shared<FromTheta>(), Constant(6),
                                                     LoptProblemOptions{});
  const WorkerWeights weights{.theta = Eigen::Vector2f(0.3F, 0.1F), .outer = {}};
  for (const int64_t window : {6, 3, 4}) {
    CAPTURE(window);
    const TruncatedPES estimator(problem, {.num_tasks = 500, .trunc_length = window, .std = 0.1});
    Statistics start;
    Statistics step;
    for (uint64_t run = 0; run < 40; ++run) {
      const Key key = FoldIn(KeyFromSeed(21), run);
      EstimatorState state = estimator.InitWorkerState(weights, key);
      Eigen::Vector2d sum(0, 0);
      const int64_t windows = 12 / window;  // two episodes
      for (int64_t w = 0; w < windows; ++w) {
        sum += estimator.Estimate(weights, FoldIn(key, static_cast<uint64_t>(w + 1)), &state)
                   .gradient.cast<double>();
      }
      start.Add(sum(0) / static_cast<double>(windows));
      step.Add(sum(1) / static_cast<double>(windows));
    }
    CHECK(std::abs(start.Mean() - 2.5 / 3) < 4 * start.StandardError());
    CHECK(std::abs(step.Mean() - 2.0) < 4 * step.StandardError());
    CHECK(start.StandardError() < 0.05);
    CHECK(step.StandardError() < 0.05);
  }
}

TEST_CASE("Perturbations of an episode's own blocks: each block runs as it would alone") {
  const Quadratics q;
  const auto dimension = q.theta.size();
  const std::vector<Key> pair_keys = SplitKey(KeyFromSeed(7), 2);
  const std::vector<int64_t> episodes = {4, 0};
  std::vector<Key> keys = SplitKey(KeyFromSeed(9), 2);
  keys.insert(keys.end(), keys.begin(), keys.begin() + 2);
  for (const int64_t block : {int64_t{1}, int64_t{3}, int64_t{7}, PerturbationClock::kEpisode}) {
    CAPTURE(block);
    const Perturbations own(pair_keys, episodes, {block}, 0.01, dimension);
    const auto rows = [&](const Perturbations& which) {
      return ThetaRows{.theta = AsSpan(q.theta), .rows = 4, .perturbations = &which};
    };
    const UnrollState start = q.problem.Start(rows(own), {}, keys);
    UnrollState state = start;
    UnrollTrace trace;
    q.problem.Run(
        {.theta = rows(own), .keys = keys, .steps = 60, .state = &state, .trace = &trace});
    REQUIRE((trace.is_last.colwise().count() >= 2).all());

    // One step at a time, each window under perturbations that name episode and block of that step.
    std::vector<int64_t> now = episodes;
    UnrollState again = start;
    UnrollTrace step;
    for (int64_t k = 0; k < 60; ++k) {
      std::vector<Key> fixed_keys;
      for (int64_t n = 0; n < 2; ++n) {
        fixed_keys.push_back(FoldIn(FoldIn(pair_keys[n], static_cast<uint64_t>(now[n])),
                                    static_cast<uint64_t>(trace.iteration(k, n) / block)));
      }
      const Perturbations fixed(fixed_keys, 0.01, dimension);
      q.problem.Run(
          {.theta = rows(fixed), .keys = keys, .steps = 1, .state = &again, .trace = &step});
      CHECK((step.loss.row(0) == trace.loss.row(k)).all());
      for (int64_t n = 0; n < 2; ++n) {
        if (step.is_last(0, n)) ++now[n];
      }
    }
    CHECK(again == state);
    CHECK(now[0] == 4 + trace.is_last.col(0).count());
  }
}

TEST_CASE("Perturbations say what does not fit") {
  const std::vector<Key> keys(2);
  CHECK_THROWS_WITH_AS(Perturbations({}, 1, 3), "perturbations: no keys, wanted one for each pair",
                       Error);
  CHECK_THROWS_WITH_AS(Perturbations(keys, {0}, {5}, 1, 3),
                       "perturbations: 1 numbers of episodes for 2 pairs", Error);
  CHECK_THROWS_WITH_AS(Perturbations(keys, {0, 0}, {PerturbationClock::kWindow}, 1, 3),
                       "perturbations: blocks of 0 inner steps, wanted at least 1", Error);
  CHECK_THROWS_WITH_AS(Perturbations(keys, {0, 0}, {5}, 1, 3).Row(0),
                       "perturbations: they last for blocks of episodes, not for the window",
                       Error);
}

TEST_CASE("A window advances the state in place: its arrays stay where they are") {
  const Quadratics q;
  UnrollState state = Start(q.problem, 3, KeyFromSeed(4));
  std::vector<const std::byte*> places;
  for (const auto& [name, array] : state) places.push_back(array.buffer().data());
  RunPlain(q.problem, q.theta, 50, &state);
  size_t i = 0;
  for (const auto& [name, array] : state) CHECK(array.buffer().data() == places[i++]);
}

TEST_CASE("A new episode is a new task with fresh params and optimizer state") {
  const LoptProblem problem(std::make_shared<FixedDimQuadraticFamily>(QuadraticOptions{}),
                            std::make_shared<MLPLOpt>(), Constant(4), {});
  UnrollState state = Start(problem, 1, KeyFromSeed(4));
  const UnrollState before = state;
  RunPlain(problem, MLPLOpt().InitTheta({}), 4, &state);
  CHECK(state.At("config") != before.At("config"));
  CHECK(state.At("params") != before.At("params"));
  for (const float value : state.At("optimizer_state").As<float>()) {
    CHECK(value == 0);
  }
}

TEST_CASE("A meta-loss that is not finite is treated as the policy says, and counted") {
  const auto run = [](bool bounded, NonFinite policy) {
    const LoptProblem problem(std::make_shared<BadTask>(bounded), Sgd(), Constant(100),
                              {.non_finite = policy});
    UnrollState state = Start(problem, 20, KeyFromSeed(1));
    const UnrollTrace trace = RunPlain(problem, Sgd()->InitTheta({}), 3, &state);
    int64_t bad = 0;
    for (int64_t b = 0; b < 20; ++b) {
      const bool expected = state.At("config").As<float>()[b] > 0;
      bad += expected ? 1 : 0;
      for (int64_t k = 0; k < 3; ++k) {
        CHECK(trace.non_finite(k, b) == expected);
        if (!expected) {
          CHECK(trace.loss(k, b) == 1);
        } else if (bounded) {
          CHECK(trace.loss(k, b) == 5);
        } else {
          CHECK(std::isnan(trace.loss(k, b)));
        }
      }
    }
    CHECK(bad > 3);
    CHECK(bad < 17);
  };
  run(true, NonFinite::kCount);
  run(true, NonFinite::kClip);
  run(false, NonFinite::kCount);
  CHECK_THROWS_WITH_AS(run(false, NonFinite::kClip),
                       "inner problem: non_finite is 'clip', but the task's normalizer has no "
                       "maximum; choose 'count' or 'abort'",
                       Error);
  CHECK_THROWS_WITH_AS(run(false, NonFinite::kAbort),
                       "inner problem: a meta-loss is nan, and non_finite is 'abort'", Error);
}

TEST_CASE("PES through a task and a learned optimizer has the closed-form gradient") {
  // Length 10 and windows of 4: the mean over a cycle of five windows, std .1.
  const auto problem = std::make_shared<LoptProblem>(std::make_shared<UnitQuadratic>(), Sgd(),
                                                     Constant(10), LoptProblemOptions{});
  const TruncatedPES estimator(problem, {.num_tasks = 500, .trunc_length = 4, .std = 0.1});
  const WorkerWeights weights{.theta = Sgd()->InitTheta({}), .outer = {}};
  Statistics statistics;
  for (uint64_t run = 0; run < 60; ++run) {
    const Key key = FoldIn(KeyFromSeed(20), run);
    EstimatorState state = estimator.InitWorkerState(weights, key);
    double sum = 0;
    for (uint64_t w = 0; w < 5; ++w) {
      sum += estimator.Estimate(weights, FoldIn(key, w + 1), &state).gradient(0);
    }
    statistics.Add(sum / 5);
  }
  CAPTURE(statistics.Mean());
  CAPTURE(statistics.StandardError());
  CHECK(std::abs(statistics.Mean() - -0.295003) < 4 * statistics.StandardError());
  CHECK(statistics.StandardError() < 0.01);
}

TEST_CASE("Calls whose sizes disagree are refused") {
  const Quadratics q;
  UnrollState state = Start(q.problem, 2);
  UnrollTrace trace;
  const std::vector<Key> keys(3);
  const auto run = [&](int64_t rows) {
    q.problem.Run({.theta = {.theta = AsSpan(q.theta), .rows = rows},
                   .keys = keys,
                   .steps = 1,
                   .state = &state,
                   .trace = &trace});
  };
  CHECK_THROWS_WITH_AS(run(3), "inner problem: 2 replicas for 3 rows of theta", Error);
  CHECK_THROWS_WITH_AS(run(2), "inner problem: 3 keys for 2 rows of theta", Error);
  CHECK_THROWS_WITH_AS(q.problem.Start({.theta = AsSpan(q.theta), .rows = 0}, {}, {}),
                       "inner problem: 0 rows of theta, wanted at least 1", Error);
}

}  // namespace
}  // namespace lopt
