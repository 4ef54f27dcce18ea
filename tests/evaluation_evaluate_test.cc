#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/parallel.h"
#include "lopt/evaluation/evaluate.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/evaluation/presets.h"
#include "lopt/evaluation/results_file.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/tasks/registry.h"
#include "tests/row_task.h"

namespace lopt {
namespace {

EvaluationConfig Parse(const std::string& json) {
  return ReadEvaluationConfig(Config::Parse(json, "test"));
}

EvaluationConfig Quadratics() {
  return Parse(R"({"steps": [5, 20], "seeds": 4, "trials": 6, "tuning_seeds": 2,
    "tasks": {"bowl": {"task": {"type": "FixedDimQuadraticFamily", "dim": 3}},
              "short": {"task": {"type": "QuadraticTask", "dim": 2}, "steps": [4]}}})");
}

std::vector<RunResult> Run(const EvaluationConfig& config, const EvaluatedOptimizers& optimizers,
                           int threads = 2) {
  EvaluationOutcome outcome;
  ThreadPool(threads).Run([&] { outcome = Evaluation(config, optimizers).Run(); });
  CHECK_FALSE(outcome.interrupted);
  return outcome.results;
}

// The results without what is measured by the clock.
std::string Lines(std::vector<RunResult> results) {
  std::string text;
  for (RunResult& result : results) {
    std::ranges::fill(result.seconds, 0.0);
    text += ResultLine(result) + "\n";
  }
  return text;
}

TEST_CASE("Every task, optimizer and seed has one result with what was asked for") {
  EvaluatedOptimizers optimizers{.baselines = Baselines()};
  const auto mlp = std::make_shared<MLPLOpt>();
  optimizers.learned.push_back({"mine", mlp, mlp->InitTheta(KeyFromSeed(0))});
  const std::vector<RunResult> results = Run(Quadratics(), optimizers);
  CHECK(results.size() == 2 * (Baselines().size() + 1) * 4);
  for (const RunResult& result : results) {
    CAPTURE(result.task);
    CAPTURE(result.optimizer);
    const size_t asked = result.task == "bowl" ? 2 : 1;
    CHECK(result.steps.size() == asked);
    CHECK(result.train_loss.size() == static_cast<size_t>(result.steps.back()));
    CHECK(result.final_train_loss.size() == asked);
    CHECK(result.mean_train_loss.size() == asked);
    CHECK(result.test_loss.size() == asked);
    CHECK(result.test_accuracy.size() == asked);
    CHECK(result.steps_to_adam.size() == asked);
    CHECK(result.seconds.size() == asked);
    CHECK(result.learning_rate.size() == (result.optimizer == "mine" ? 0 : asked));
  }
}

TEST_CASE("All baselines that are tuned have equal budgets of trials, the others none") {
  const std::vector<RunResult> results = Run(Quadratics(), {.baselines = Baselines()});
  for (const RunResult& result : results) {
    CAPTURE(result.optimizer);
    const bool tuned = !BaselinesNamed(result.optimizer)[0].tuned.empty();
    CHECK(result.trials == (tuned ? 6 : 0));
    CHECK(result.tuning_loss.empty() == !tuned);
    CHECK(result.at_edge.empty() == !tuned);
  }
}

// What RecordedAdam was made with: learning_rate, beta1, beta2.
std::vector<std::vector<double>>* recorded = nullptr;

// The same as Adam-cosine-betas with an optimizer that keeps what it is made with in `recorded`.
Baseline RecordedBaseline() {
  static const bool added = [] {
    OptimizerRegistry().Add<LearnableAdamOptions>(
        "RecordedAdam", "For this test.", [](const LearnableAdamOptions& options) {
          if (recorded) recorded->push_back({options.learning_rate, options.beta1, options.beta2});
          return std::make_shared<LearnableAdam>(options);
        });
    return true;
  }();
  CHECK(added);
  Baseline baseline = BaselinesNamed("Adam-cosine-betas")[0];
  baseline.optimizer =
      Config::Parse(R"({"type": "RecordedAdam", "epsilon_root": 0, "schedule": "cosine"})", "test");
  return baseline;
}

// What an evaluation of one task after one number of steps tries with so many trials, and its
// result.
std::pair<std::vector<std::vector<double>>, RunResult> TriedWith(int64_t trials) {
  EvaluationConfig config = Quadratics();
  config.tasks.resize(1);
  config.steps = {20};
  config.trials = trials;
  const Baseline baseline = RecordedBaseline();
  std::vector<std::vector<double>> tried;
  recorded = &tried;
  const std::vector<RunResult> results = Run(config, {.baselines = {baseline}});
  recorded = nullptr;
  // It is also made with its defaults, to ask for its schedule, and at last with the best values.
  const LearnableAdamOptions made;
  std::erase(tried, std::vector<double>{made.learning_rate, made.beta1, made.beta2});
  tried.pop_back();
  return {tried, results.front()};
}

TEST_CASE("The first N of more trials are the N trials, and the tuning loss never rises") {
  const auto [all, result_of_all] = TriedWith(63);
  CHECK(all.size() == 63);
  double loss = std::numeric_limits<double>::infinity();
  for (const int64_t trials : {2, 7, 11, 21, 31, 42}) {
    CAPTURE(trials);
    const auto [some, result] = TriedWith(trials);
    CHECK(std::ssize(some) == trials);
    CHECK(std::equal(some.begin(), some.end(), all.begin()));
    CHECK(result.trials == trials);
    CHECK(result.tuning_loss[0] <= loss);
    loss = result.tuning_loss[0];
    // What was chosen is among those tried.
    const std::vector<double> chosen = {result.learning_rate[0],
                                        result.hyperparameters.at("beta1")[0],
                                        result.hyperparameters.at("beta2")[0]};
    CHECK(std::ranges::count(some, chosen) == 1);
  }
  CHECK(result_of_all.tuning_loss[0] <= loss);
}

TEST_CASE("Tuning finds the learning rate that solves a quadratic in one step") {
  // Gradient descent with learning rate 1/2 jumps to the optimum of |c - x|^2.
  Baseline sgd = BaselinesNamed("SGD")[0];
  sgd.tuned[0].lowest = 1e-3;
  sgd.tuned[0].highest = 10;
  EvaluationConfig config = Quadratics();
  config.trials = 28;
  for (const RunResult& result : Run(config, {.baselines = {sgd}})) {
    CHECK(result.learning_rate[0] == doctest::Approx(0.5).epsilon(0.1));
    CHECK_FALSE(result.at_edge[0]);
    CHECK(result.test_loss[0] < 1e-6);
  }
}

TEST_CASE("A learning rate at the edge of those tried is marked; more trials look beyond") {
  Baseline sgd = BaselinesNamed("SGD")[0];
  sgd.tuned[0].lowest = 1e-4;
  sgd.tuned[0].highest = 1e-2;
  EvaluationConfig config = Quadratics();
  // The highest of the first six, 1/2 + 4 / 1.61803398875 without the whole turns of the range.
  for (const RunResult& result : Run(config, {.baselines = {sgd}})) {
    CHECK(result.at_edge[0]);
    CHECK(result.learning_rate[0] == doctest::Approx(1e-4 * std::pow(100, 0.9721360)));
  }
  config.trials = 42;
  for (const RunResult& result : Run(config, {.baselines = {sgd}})) {
    CHECK_FALSE(result.at_edge[0]);
    CHECK(result.learning_rate[0] == doctest::Approx(0.5).epsilon(0.1));
  }
}

// Gradient descent of this learning rate, as a learned optimizer.
NamedLearnedOptimizer LearnedSgd(double learning_rate) {
  const auto sgd =
      std::make_shared<LearnableSGD>(LearnableSGDOptions{.learning_rate = learning_rate});
  return {.name = "mine", .optimizer = sgd, .theta = sgd->InitTheta(Key{})};
}

TEST_CASE("Tuning finds what the steps of a learned optimizer are to be multiplied by") {
  EvaluationConfig config = Quadratics();
  config.trials = 21;
  const EvaluatedOptimizers plain{.learned = {LearnedSgd(0.125)},
                                  .baselines = BaselinesNamed("Adam,SGD")};
  EvaluatedOptimizers optimizers = plain;
  AddTunedSteps(&optimizers);
  const std::vector<RunResult> results = Run(config, optimizers);
  std::vector<RunResult> of_plain;
  int64_t tuned = 0;
  for (const RunResult& result : results) {
    if (result.optimizer != "mine-tuned") {
      of_plain.push_back(result);
      continue;
    }
    ++tuned;
    REQUIRE(result.hyperparameters.size() == 1);
    // 4 times 1/8 jumps to the optimum.
    const std::vector<double>& multipliers = result.hyperparameters.at("step_multiplier");
    REQUIRE(multipliers.size() == result.steps.size());
    CHECK(multipliers.front() == doctest::Approx(4).epsilon(0.1));
    CHECK(result.trials == 21);
    CHECK(result.learning_rate.empty());
    CHECK(result.at_edge == std::vector<bool>(result.steps.size(), false));
    CHECK(result.tuning_loss.size() == result.steps.size());
    CHECK(result.test_loss.front() < 1e-9);
  }
  CHECK(tuned == 2 * 4);
  CHECK(Lines(of_plain) == Lines(Run(config, plain)));  // nothing else changes
}

TEST_CASE("A step multiplier at the edge of those tried is marked, and one is exactly 1") {
  EvaluationConfig config = Quadratics();
  config.trials = 3;
  // Three are tried: in the middle of the range, at .1180 and at .7361 of it.
  for (const auto& [rate, wanted, at_edge] :
       {std::tuple(0.5, 1., false), {0.5 / 64, 5.1365, true}, {0.5 * 64, 0.070823, true}}) {
    EvaluatedOptimizers optimizers{.learned = {LearnedSgd(rate)}};
    AddTunedSteps(&optimizers);
    const std::vector<RunResult> results = Run(config, optimizers);
    for (size_t i = 4; i < 8; ++i) {  // of bowl
      const RunResult& result = results[i];
      REQUIRE(result.optimizer == "mine-tuned");
      CHECK(result.hyperparameters.at("step_multiplier")[0] ==
            doctest::Approx(wanted).epsilon(1e-4));
      CHECK(result.at_edge[0] == at_edge);
      if (wanted == 1) CHECK(result.train_loss == results[i - 4].train_loss);
    }
  }
}

TEST_CASE("Steps are multiplied where there are some, of optimizers that stand for their params") {
  EvaluatedOptimizers none{.baselines = BaselinesNamed("SGD")};
  CHECK_THROWS_WITH_AS(
      AddTunedSteps(&none),
      "evaluation: there is no learned optimizer to tune the steps of; give a theta file", Error);
  const auto average =
      OptimizerRegistry().Make(Config::Parse(R"({"type": "ScheduleFreeAdamW"})", "test"));
  CHECK_THROWS_WITH_AS(
      WithTunedSteps({.name = "mine", .optimizer = average, .theta = average->InitTheta(Key{})}),
      "mine-tuned: step multiplier: wanted an optimizer whose steps make the params that it stands "
      "for; this one keeps those, an average, in its state",
      Error);
}

TEST_CASE("Who keeps an average is not judged without the length: an error before all trainings") {
  const auto average =
      OptimizerRegistry().Make(Config::Parse(R"({"type": "ScheduleFreeAdamW"})", "test"));
  EvaluatedOptimizers optimizers{
      .learned = {{.name = "mine", .optimizer = average, .theta = average->InitTheta(Key{})}}};
  CHECK_THROWS_WITH_AS(
      AddUnknownLengths(&optimizers),
      "mine-unknown: UnknownLength: wanted an optimizer whose steps make the params that it stands "
      "for; this one keeps those, an average, in its state",
      Error);
}

TEST_CASE("Nor who averages losses over parts of the length: an error before all trainings") {
  const auto celo = OptimizerRegistry().Make(Config::Parse(R"({"type": "CeloAdam"})", "test"));
  EvaluatedOptimizers optimizers{
      .learned = {{.name = "mine", .optimizer = celo, .theta = celo->InitTheta(Key{})}}};
  CHECK_THROWS_WITH_AS(
      AddUnknownLengths(&optimizers),
      "mine-unknown: UnknownLength: wanted an optimizer whose state does not depend on the length "
      "of the run; Celo (unless 'scheduled' is false), CeloAdam and Sinv6 average losses over "
      "parts of that length and must know it",
      Error);
}

TEST_CASE("Without Adam there are no steps to Adam's loss") {
  CHECK(Run(Quadratics(), {.baselines = BaselinesNamed("SGD")})[0].steps_to_adam.empty());
}

TEST_CASE("Adam needs all of its steps to its loss where that falls to the end") {
  // On a quadratic that it has not yet solved the loss of every seed, and so their interquartile
  // mean, falls with each step.
  Baseline adam = BaselinesNamed("Adam")[0];
  adam.tuned[0].lowest = 1e-3;
  adam.tuned[0].highest = 2e-3;
  for (const RunResult& result : Run(Quadratics(), {.baselines = {adam}})) {
    CHECK(result.steps_to_adam == result.steps);
  }
}

TEST_CASE("Where Adam diverged nobody reaches its loss") {
  Baseline adam = BaselinesNamed("Adam")[0];
  adam.tuned[0].lowest = 1e30;
  adam.tuned[0].highest = 1e35;
  for (const RunResult& result :
       Run(Quadratics(), {.baselines = {adam, BaselinesNamed("SGD")[0]}})) {
    CHECK(std::ranges::count(result.steps_to_adam, 0) == std::ssize(result.steps));
  }
}

// Goes down on a quadratic for twelve steps, and up from there.
class Returning : public LearnedOptimizer {
 public:
  Returning() : LearnedOptimizer(Layout({{"unused", {1}}})) {}

 private:
  struct Rule : UpdateRule {
    explicit Rule(const Layout& params) : UpdateRule(params, Layout()) {}
    void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                  std::span<float>, Workspace&) const override {
      const float rate = info.step < 12 ? 0.3F : -2;
      for (size_t i = 0; i < params.size(); ++i) params[i] -= rate * gradient[i];
    }
  };
  void DoInitTheta(Key, std::span<float> theta) const override { theta[0] = 0; }
  std::unique_ptr<UpdateRule> DoBind(const Layout& params, std::span<const float>) const override {
    return std::make_unique<Rule>(params);
  }
};

TEST_CASE("Adam's loss that is reached and lost again is not reached, and the training blew up") {
  EvaluationConfig config = Quadratics();
  config.tasks.resize(1);
  config.steps = {10, 40};
  Baseline adam = BaselinesNamed("Adam")[0];
  adam.tuned[0].lowest = 1e-3;
  adam.tuned[0].highest = 2e-3;
  const auto optimizer = std::make_shared<Returning>();
  for (const RunResult& result : Run(config, {.learned = {{.name = "returns",
                                                         .optimizer = optimizer,
                                                         .theta = optimizer->InitTheta(Key{})}},
                                             .baselines = {adam}})) {
    if (result.optimizer != "returns") continue;
    CHECK(result.steps_to_adam[0] > 0);
    CHECK(result.steps_to_adam[0] < 10);
    CHECK(result.steps_to_adam[1] == 0);
    CHECK(result.blew_up == std::vector<bool>{false, true});
  }
}

TEST_CASE("An evaluation draws nothing that a meta-training of the same seed draws") {
  EvaluationConfig config = Quadratics();
  config.tasks.resize(1);
  const RunResult result = Run(config, {.baselines = BaselinesNamed("SGD")})[0];
  const auto first_loss = [&](Key key) {
    const auto task = TaskRegistry().Make(config.tasks[0].task, TaskResources(""));
    const LearnableSGD sgd(LearnableSGDOptions{});
    const int64_t steps = 1;
    Workspace scratch;
    const Eigen::VectorXf theta = sgd.InitTheta(Key{});
    return TrainTask(*task, *sgd.Bind(task->params_layout(), AsSpan(theta)), {&steps, 1},
                     Split::kTest, {.key = key}, scratch)
        .train_loss[0];
  };
  // A meta-training's keys are its seed's, folded with worker, window and so on from 0.
  const Key run = KeyFromSeed(static_cast<uint64_t>(config.seed));
  CHECK(result.train_loss[0] != first_loss(FoldIn(FoldIn(run, 1), 0)));
  const Key evaluation = FoldIn(run, std::numeric_limits<uint64_t>::max());
  CHECK(result.train_loss[0] == first_loss(FoldIn(FoldIn(evaluation, 1), 0)));

  // Nor do the trials draw what the judged trainings draw: their losses are those of other seeds,
  // here where nothing moves.
  Baseline still = BaselinesNamed("SGD")[0];
  still.tuned[0].lowest = 1e-30;
  still.tuned[0].highest = 1e-29;
  config.steps = {1};
  config.trials = 2;
  config.tuning_seeds = 1;
  const RunResult tuned = Run(config, {.baselines = {still}})[0];
  CHECK(tuned.test_loss[0] == first_loss(FoldIn(FoldIn(evaluation, 1), 0)));
  CHECK(tuned.tuning_loss[0] == first_loss(FoldIn(FoldIn(evaluation, 0), 0)));
}

TEST_CASE(
    "Trials are judged on inner_valid, trainings on test, and no split is judged by another") {
  struct NoOptions {
    void Visit(FieldVisitor& /*v*/) {}
  };
  TaskRegistry().Add<NoOptions>("Rows", "For this test.",
                                [](const NoOptions& /*options*/, const TaskResources&) {
                                  return std::make_shared<RowTask>(10, 1, Sampling::kEpoch);
                                });
  const EvaluationConfig config = Parse(R"({"steps": [2, 20], "seeds": 2, "trials": 3,
    "tuning_seeds": 2, "tasks": {"rows": {"task": {"type": "Rows"}}}})");
  // The loss of a split is the number of its row: 10 of inner_valid, 11 of outer_valid, 12 of test.
  for (const RunResult& result : Run(config, {.baselines = BaselinesNamed("SGD,Adam-cosine")})) {
    CHECK(result.tuning_loss == std::vector<double>{10, 10});
    CHECK(result.test_loss == std::vector<double>{12, 12});
  }
}

TEST_CASE("Results do not depend on the number of threads") {
  const auto mlp = std::make_shared<MLPLOpt>();
  EvaluatedOptimizers optimizers{.learned = {{"mine", mlp, mlp->InitTheta(KeyFromSeed(0))}},
                                 .baselines = BaselinesNamed("Adam,SGDM-cosine")};
  AddTunedSteps(&optimizers);
  const EvaluationConfig config = ReadEvaluationConfig(EvaluationPresets().Find("smoke"));
  CHECK(Lines(Run(config, optimizers, 1)) == Lines(Run(config, optimizers, 3)));
}

TEST_CASE("A baseline is tuned, or runs its schedule, for each number of steps by itself") {
  EvaluationConfig config = Quadratics();
  config.tasks.resize(1);
  config.trials = 23;
  for (const char* name : {"SGDM-cosine", "SGDM", "NAdamW-AlgoPerf", "Adam-untuned"}) {
    CAPTURE(name);
    config.steps = {5, 20};
    const auto both = Run(config, {.baselines = BaselinesNamed(name)});
    config.steps = {5};
    const auto alone = Run(config, {.baselines = BaselinesNamed(name)});
    for (size_t i = 0; i < alone.size(); ++i) {
      CHECK(both[i].test_loss[0] == alone[i].test_loss[0]);
      CHECK(both[i].learning_rate[0] == alone[i].learning_rate[0]);
      if (alone[i].trials > 0) CHECK(both[i].tuning_loss[0] == alone[i].tuning_loss[0]);
    }
  }
}

TEST_CASE("One training serves several numbers of steps where they try the same") {
  EvaluationConfig config = Quadratics();
  config.tasks.resize(1);
  config.trials = 14;
  EvaluationProgress last;
  Evaluation(config, {.baselines = BaselinesNamed("SGD,SGD-cosine")})
      .Run({.on_progress = [&](const EvaluationProgress& progress) { last = progress; }});
  CHECK(last.done == doctest::Approx(1));
  // After 5 and 20 steps: SGD's first round serves both, the second may.
  const int64_t judging = 4 * (25 + 25), cosine = 14 * 2 * 25, shared = 7 * 2 * 20;
  CHECK(last.inner_steps <= judging + cosine + shared + 7 * 2 * 25);
  CHECK(last.inner_steps >= judging + cosine + 2 * shared);
}

TEST_CASE("Diverged trainings stay among the results") {
  Baseline sgd = BaselinesNamed("SGD")[0];
  sgd.tuned[0].lowest = 1e20;
  sgd.tuned[0].highest = 1e21;
  const std::vector<RunResult> results = Run(Quadratics(), {.baselines = {sgd}});
  CHECK(results.size() == 2 * 4);
  for (const RunResult& result : results) {
    for (size_t i = 0; i < result.steps.size(); ++i) CHECK(result.Diverged(i));
  }
}

TEST_CASE("EvaluatedOptimizers need names of their own") {
  const auto mlp = std::make_shared<MLPLOpt>();
  const NamedLearnedOptimizer adam{"Adam", mlp, mlp->InitTheta(Key{})};
  CHECK_THROWS_WITH_AS(
      Evaluation(Quadratics(), {.learned = {adam}, .baselines = BaselinesNamed("Adam")}),
      "evaluation: two optimizers are called 'Adam'; give one another name", Error);
  CHECK_THROWS_WITH_AS(
      Evaluation(Quadratics(), {.learned = {adam}, .baselines = BaselinesNamed("SGD")}),
      "evaluation: a learned optimizer is called 'Adam', as the baseline that others are compared "
      "with; give it another name",
      Error);
  CHECK_THROWS_WITH_AS(Evaluation(Quadratics(), {}),
                       "evaluation: there is nothing to judge; give a theta file or a baseline",
                       Error);
  CHECK_THROWS_AS(BaselinesNamed("Adam,Adma"), Error);
  for (const char* names : {"Adam,", ",Adam", "Adam,,SGD", "", "none,", "all,Adam"}) {
    CHECK_THROWS_AS(BaselinesNamed(names), Error);
  }
  CHECK_THROWS_WITH_AS(BaselinesNamed("Adam,Adam"), "The baseline 'Adam' is named twice", Error);
  CHECK(BaselinesNamed("none").empty());
  CHECK(BaselinesNamed("classic").size() == 8);
  CHECK(BaselinesNamed("strong").size() == 9);
}

TEST_CASE("A stop ends an evaluation after the running steps, with whole tasks only") {
  std::atomic<bool> stop = false;
  int64_t trainings_after = 0;
  const auto on_progress = [&](const EvaluationProgress& progress) {
    if (stop) ++trainings_after;
    stop = progress.task == "short" && progress.stage == "training 1 optimizers";
  };
  const EvaluationOutcome outcome = Evaluation(Quadratics(), {.baselines = BaselinesNamed("SGD")})
                                        .Run({.on_progress = on_progress, .stop = &stop});
  CHECK(outcome.interrupted);
  CHECK(trainings_after == 0);
  CHECK(outcome.results.size() == 4);
  for (const RunResult& result : outcome.results) CHECK(result.task == "bowl");
}

TEST_CASE("Progress tells the task and the stage, and its shares of work add up") {
  std::vector<std::string> stages;
  std::vector<EvaluationProgress> all;
  const auto on_progress = [&](const EvaluationProgress& progress) {
    const std::string stage = progress.task + ": " + progress.stage;
    if (stages.empty() || stages.back() != stage) stages.push_back(stage);
    all.push_back(progress);
  };
  const auto mlp = std::make_shared<MLPLOpt>();
  EvaluatedOptimizers optimizers{.learned = {{"mine", mlp, mlp->InitTheta(KeyFromSeed(0))}},
                                 .baselines = BaselinesNamed("SGD,SGD-cosine")};
  AddTunedSteps(&optimizers);
  ThreadPool(2).Run(
      [&] { Evaluation(Quadratics(), optimizers).Run({.on_progress = on_progress}); });
  CHECK(stages ==
        std::vector<std::string>{"bowl: tuning 3 optimizers", "bowl: training 4 optimizers",
                                 "short: tuning 3 optimizers", "short: training 4 optimizers"});
  CHECK(all.front().done == 0);
  CHECK(all.front().task_number == 1);
  CHECK(all.back().done == doctest::Approx(1));
  CHECK(all.back().task_number == 2);
  CHECK(all.back().tasks == 2);
  // bowl (5 and 20 steps): tuning 6 x 2 x (20 + 25 + 20), judging 4 x (25 + 25 + 20 + 25); short (4
  // steps).
  const int64_t bowl = 6 * 2 * (20 + 25 + 20) + 4 * (25 + 25 + 20 + 25);
  const int64_t quick = 6 * 2 * (4 + 4 + 4) + 4 * (4 + 4 + 4 + 4);
  CHECK(all.back().inner_steps == bowl + quick);
  for (size_t i = 1; i < all.size(); ++i) CHECK(all[i].done >= all[i - 1].done);
}

TEST_CASE("Where nothing is tuned no stage says so") {
  std::vector<std::string> stages;
  Evaluation(Quadratics(), {.learned = {LearnedSgd(0.1)}})
      .Run({.on_progress = [&](const EvaluationProgress& progress) {
        if (stages.empty() || stages.back() != progress.stage) stages.push_back(progress.stage);
      }});
  CHECK(stages == std::vector<std::string>{"training 1 optimizers"});
}

TEST_CASE("An evaluation goes on after the tasks that it is given the results of") {
  const EvaluatedOptimizers optimizers{.baselines = BaselinesNamed("SGD")};
  const std::vector<RunResult> whole = Run(Quadratics(), optimizers);
  Evaluation evaluation(Quadratics(), optimizers);
  const std::vector<RunResult> first(whole.begin(), whole.begin() + 4);
  std::vector<std::string> trained;
  const EvaluationOutcome outcome =
      evaluation.Run({.finished = first, .on_task = [&](const std::vector<RunResult>& results) {
                        trained.push_back(results[0].task);
                      }});
  CHECK(trained == std::vector<std::string>{"short"});
  CHECK(Lines(outcome.results) == Lines(whole));
  CHECK(evaluation.Run({.finished = whole}).results.size() == whole.size());
  CHECK_THROWS_WITH_AS(evaluation.Run({.finished = {whole[0]}}),
                       "evaluation: the 1 finished results are not those of whole tasks", Error);
}

// The bowls of FixedDimQuadraticFamily for a family that wants all rows in one evaluation.
class TogetherQuadratic : public FixedDimQuadraticFamily {
 public:
  using FixedDimQuadraticFamily::FixedDimQuadraticFamily;
  int64_t PreferredRows() const override { return kAllRows; }
};

TEST_CASE("Seeds that advance together have the results of each alone, where rows are apart") {
  TaskRegistry().Add<QuadraticOptions>("TogetherQuadratic", "For this test.",
                                       [](const QuadraticOptions& options, const TaskResources&) {
                                         return std::make_shared<TogetherQuadratic>(options);
                                       });
  EvaluationConfig config = Quadratics();
  config.tasks.resize(1);
  const EvaluatedOptimizers optimizers{.baselines = BaselinesNamed("Adam,SGD-cosine")};
  const std::string alone = Lines(Run(config, optimizers));
  config.tasks[0].task = Config::Parse(R"({"type": "TogetherQuadratic", "dim": 3})", "test");
  CHECK(Lines(Run(config, optimizers)) == alone);
  int64_t calls = 0;
  Evaluation(config, optimizers).Run({.on_progress = [&](const auto&) { ++calls; }});
  // Two stages; 6 rates of 1 + 2 rules each, 2 + 2 rules in the end: seeds make one training.
  CHECK(calls == 2 + 6 * 3 + 4);
}

}  // namespace
}  // namespace lopt
