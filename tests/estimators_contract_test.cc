#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "estimators/lopt_problem.h"
#include "estimators/registry.h"
#include "tests/contracts/build.h"
#include "tests/contracts/estimator_contract.h"
#include "tests/contracts/optimizer_contract.h"
#include "tests/contracts/problem_contract.h"
#include "tests/contracts/schedule_contract.h"
#include "tests/contracts/task_contract.h"
#include "tests/temp_directory.h"

// One suite over every registered task family, learned optimizer, schedule and estimator. A type
// that is added to a registry is covered here as it stands; one that cannot be built from its
// defaults needs a line in tests/contracts/examples.h.

namespace lopt::contracts {
namespace {

template <class Made, class Check>
void ForEach(const std::vector<Built<Made>>& all, const Check& check) {
  REQUIRE_FALSE(all.empty());
  for (const Built<Made>& built : all) {
    INFO(built.name);
    check(built);
  }
}

// The first example of each type.
template <class Made>
std::vector<Built<Made>> OneOfEachType(const std::vector<Built<Made>>& all) {
  std::vector<Built<Made>> firsts;
  for (const Built<Made>& built : all) {
    if (firsts.empty() || firsts.back().config.Type() != built.config.Type()) {
      firsts.push_back(built);
    }
  }
  return firsts;
}

std::shared_ptr<const TruncationSchedule> ShortEpisodes() {
  return std::make_shared<LogUniformLengthSchedule>(
      LogUniformLengthSchedule::Options{.min_length = 4, .max_length = 15});
}

// Every task trained by every optimizer in short episodes.
template <class Check>
void ForEachTaskAndOptimizer(const Check& check) {
  const auto optimizers = OneOfEachType(EveryOptimizer());
  ForEach(EveryTask(), [&](const Built<TaskFamily>& task) {
    ForEach(optimizers, [&](const Built<LearnedOptimizer>& optimizer) {
      const LoptProblem problem(task.made, optimizer.made, ShortEpisodes(),
                                {.random_initial_iteration_offset = 5});
      check(problem, *task.made, *optimizer.made);
    });
  });
}

WorkerWeights DrawWeights(const LearnedOptimizer& optimizer) {
  const std::vector<float> theta = DrawTheta(optimizer, 1);
  return {.theta = Eigen::Map<const Eigen::VectorXf>(theta.data(), std::ssize(theta)), .outer = {}};
}

// Every estimator on every task, trained by the first optimizer; then by every optimizer on the
// first task.
template <class Check>
void ForEachEstimator(const Check& check) {
  const auto tasks = EveryTask();
  const auto optimizers = OneOfEachType(EveryOptimizer());
  const auto run = [&](const Built<LearnedOptimizer>& optimizer, const Built<TaskFamily>& task) {
    const WorkerWeights weights = DrawWeights(*optimizer.made);
    INFO(optimizer.name);
    ForEach(EveryEstimator(optimizer.made, task.config),
            [&](const Built<ConfiguredEstimator>& estimator) { check(estimator, weights); });
  };
  ForEach(tasks, [&](const Built<TaskFamily>& task) { run(optimizers.front(), task); });
  ForEach(optimizers,
          [&](const Built<LearnedOptimizer>& optimizer) { run(optimizer, tasks.front()); });
}

TEST_CASE("Every registered type can be built") {
  const auto optimizers = EveryOptimizer();
  CHECK(OneOfEachType(optimizers).size() == OptimizerRegistry().table().entries().size());
  CHECK(OneOfEachType(EverySchedule()).size() == ScheduleRegistry().table().entries().size());
  const auto tasks = EveryTask();
  const size_t left_out = HasDerivatives(tasks.front().config) ? 0 : 2;  // FullGrad, TruncatedGrad
  CHECK(OneOfEachType(EveryEstimator(optimizers.front().made, tasks.front().config)).size() ==
        EstimatorRegistry().table().entries().size() - left_out);
  ForEach(tasks, [](const Built<TaskFamily>& task) { CheckShape(*task.made); });
}

TEST_CASE("A type that cannot be built from its defaults is named with the way out") {
  TypeTable table("dish");
  table.Add({"Soup", "Has no default.", [](FieldVisitor&) {}});
  const auto make = [](const Config&) -> std::shared_ptr<const int> { Fail("no salt"); };
  CheckThrows("cannot build dish 'Soup' from {\"type\":\"Soup\"}: no salt",
              [&] { BuildEvery<int>(table, {}, "{}", make); });
  CheckThrows("tests/contracts/examples.h", [&] { BuildEvery<int>(table, {}, "{}", make); });
  CheckThrows("Salad",
              [&] { BuildEvery<int>(table, {{.config = R"({"type": "Salad"})"}}, "{}", make); });
}

TEST_CASE("Gradients of every task agree with central differences of its loss") {
  ForEach(EveryTask(), [](const Built<TaskFamily>& task) {
    if (task.example.other_gradient) return;
    if (task.example.noisy_gradient) {
      CheckNoisyGradientAgainstDifferences(*task.made);
    } else {
      CheckGradientAgainstDifferences(*task.made);
    }
  });
}

TEST_CASE("Tasks, params and data are functions of their keys") {
  ForEach(EveryTask(), [](const Built<TaskFamily>& task) {
    CheckDrawsAreFunctionsOfKey(*task.made);
    CheckDataIsFunctionOfKey(*task.made, task.example.noisy_gradient);
  });
}

TEST_CASE("Rows of one evaluation are independent, and losses do not depend on what is asked for") {
  ForEach(EveryTask(), [](const Built<TaskFamily>& task) {
    CheckRowsAreIndependent(*task.made);
    CheckLossesWithoutGradients(*task.made);
    CheckModelState(*task.made);
  });
}

TEST_CASE("What a task shows can be drawn") {
  ForEach(EveryTask(), [](const Built<TaskFamily>& task) { CheckPictures(*task.made); });
}

TEST_CASE("Tasks evaluated on many threads give the bits of one thread") {
  ForEach(EveryTask(),
          [](const Built<TaskFamily>& task) { CheckThreadsGiveTheSameBits(*task.made); });
}

TEST_CASE("Tasks name the span whose size is wrong") {
  ForEach(EveryTask(),
          [](const Built<TaskFamily>& task) { CheckWrongSizesOfTasksThrow(*task.made); });
}

TEST_CASE("Normalizers rise and keep to their maximum") {
  ForEach(EveryTask(), [](const Built<TaskFamily>& task) { CheckNormalizer(*task.made); });
}

TEST_CASE("Splits of a data set follow one another and explicit examples are averaged over") {
  ForEach(EveryTask(), [](const Built<TaskFamily>& task) {
    CheckExamples(*task.made, !task.example.noisy_gradient && !task.example.other_gradient);
  });
}

TEST_CASE("Optimizers start and are bound as their layouts say") {
  ForEach(EveryOptimizer(), [](const Built<LearnedOptimizer>& optimizer) {
    CheckInitTheta(*optimizer.made);
    CheckLayouts(*optimizer.made);
    CheckThetaMatters(*optimizer.made);
  });
}

TEST_CASE("Optimizers name the span whose size is wrong") {
  ForEach(EveryOptimizer(), [](const Built<LearnedOptimizer>& optimizer) {
    CheckWrongSizesOfOptimizersThrow(*optimizer.made);
  });
}

TEST_CASE("Training goes on from a copy of params and state, bit for bit") {
  ForEach(EveryOptimizer(),
          [](const Built<LearnedOptimizer>& optimizer) { CheckTrainingResumes(*optimizer.made); });
}

TEST_CASE("Updates depend neither on alignment nor on other threads") {
  ForEach(EveryOptimizer(), [](const Built<LearnedOptimizer>& optimizer) {
    CheckAlignmentDoesNotMatter(*optimizer.made);
    CheckThreadsDoNotMatter(*optimizer.made);
  });
}

TEST_CASE("A zero gradient leaves params finite") {
  ForEach(EveryOptimizer(), [](const Built<LearnedOptimizer>& optimizer) {
    CheckZeroGradientIsHarmless(*optimizer.made);
  });
}

TEST_CASE("Optimizers that need the length of the run say so and refuse to go without") {
  ForEach(EveryOptimizer(),
          [](const Built<LearnedOptimizer>& optimizer) { CheckNeedOfNumSteps(*optimizer.made); });
}

TEST_CASE("Schedules give lengths that are functions of the key") {
  ForEach(EverySchedule(),
          [](const Built<TruncationSchedule>& schedule) { CheckLengths(*schedule.made); });
}

TEST_CASE("A run of 50 steps is two of 25, bit for bit, for every task and optimizer") {
  ForEachTaskAndOptimizer(
      [](const LoptProblem& problem, const TaskFamily&, const LearnedOptimizer& optimizer) {
        CheckRunSplits(problem, DrawTheta(optimizer, 1));
      });
}

TEST_CASE("Twins without a perturbation do not differ, for every task and optimizer") {
  ForEachTaskAndOptimizer(
      [](const LoptProblem& problem, const TaskFamily&, const LearnedOptimizer& optimizer) {
        CheckTwins(problem, DrawTheta(optimizer, 1));
      });
}

TEST_CASE("Episodes end independently of theta, for every task and optimizer") {
  ForEachTaskAndOptimizer(
      [](const LoptProblem& problem, const TaskFamily&, const LearnedOptimizer& optimizer) {
        CheckEpisodes(problem, DrawTheta(optimizer, 1), DrawTheta(optimizer, 2));
      });
}

TEST_CASE("A replica does not know of other replicas, for every task and optimizer") {
  ForEachTaskAndOptimizer(
      [](const LoptProblem& problem, const TaskFamily& task, const LearnedOptimizer& optimizer) {
        if (RowsAreExact(task)) {
          CheckReplicasAreIndependent(problem, DrawTheta(optimizer, 1));
        }
      });
}

TEST_CASE("Wrong numbers of replicas are refused, for every task and optimizer") {
  ForEachTaskAndOptimizer(
      [](const LoptProblem& problem, const TaskFamily&, const LearnedOptimizer& optimizer) {
        CheckWrongRowsThrow(problem, DrawTheta(optimizer, 1));
      });
}

TEST_CASE("Every choice of the meta-loss splits runs and keeps twins together") {
  const auto optimizer = EveryOptimizer().front();
  const std::vector<float> theta = DrawTheta(*optimizer.made, 1);
  ForEach(EveryTask(), [&](const Built<TaskFamily>& task) {
    std::vector<LoptProblemOptions> choices;
    for (const auto& [meta_loss, name] : kMetaLosses) {
      choices.push_back({.meta_loss = meta_loss});
      for (const LayoutEntry& aux : task.made->aux_layout().entries()) {
        choices.push_back({.meta_loss = meta_loss, .meta_loss_aux = aux.name});
      }
    }
    for (const LoptProblemOptions& options : choices) {
      INFO("meta_loss ", NameOf("meta_loss", options.meta_loss, kMetaLosses), " ",
           options.meta_loss_aux);
      const LoptProblem problem(task.made, optimizer.made, ShortEpisodes(), options);
      CheckRunSplits(problem, theta);
      CheckMetaLoss(problem, theta);
      CHECK((StartPairs(problem, theta, 1, 0).Run(problem, 8).loss.col(0) ==
             StartPairs(problem, theta, 1, 0).Run(problem, 8).loss.col(1))
                .all());
    }
  });
}

TEST_CASE("Runs under every schedule split") {
  const auto optimizer = EveryOptimizer().front();
  const auto task = EveryTask().front();
  ForEach(EverySchedule(), [&](const Built<TruncationSchedule>& schedule) {
    const LoptProblem problem(task.made, optimizer.made, schedule.made, {});
    CHECK(problem.EpisodesEnd() == schedule.made->EpisodesEnd());
    CheckReplicasAreIndependent(problem, DrawTheta(*optimizer.made, 1));
  });
}

TEST_CASE("Estimates have the same bits on any number of threads") {
  ForEachEstimator([](const Built<ConfiguredEstimator>& estimator, const WorkerWeights& weights) {
    CheckThreadsGiveTheSameBits(*estimator.made->estimator, weights);
  });
}

TEST_CASE("An estimator goes on from its saved state, bit for bit") {
  const TempDirectory directory;
  ForEachEstimator([&](const Built<ConfiguredEstimator>& estimator, const WorkerWeights& weights) {
    CheckStateResumes(*estimator.made->estimator, weights, directory / "state.safetensors");
  });
}

TEST_CASE("Estimates are finite gradients of the size of theta and count their steps") {
  ForEachEstimator([](const Built<ConfiguredEstimator>& estimator, const WorkerWeights& weights) {
    CheckEstimates(*estimator.made->estimator, weights, estimator.example.inner_steps);
    CHECK(estimator.made->weight > 0);
    CHECK_FALSE(estimator.made->task.empty());
  });
}

TEST_CASE("The twins of an estimator share their tasks, params and data") {
  const auto optimizer = EveryOptimizer().front();
  const WorkerWeights weights = DrawWeights(*optimizer.made);
  ForEach(EveryTask(), [&](const Built<TaskFamily>& task) {
    ForEach(EveryEstimator(optimizer.made, task.config),
            [&](const Built<ConfiguredEstimator>& estimator) {
              if (!estimator.example.has_std) return;
              const auto with_std = [&](const char* std) {
                const Config config =
                    estimator.config.With("task", task.config.Dump(-1)).With("std", std);
                return EstimatorRegistry().Make(config, optimizer.made, Resources());
              };
              CheckTwinsShareTheirDraws(*with_std("0.01")->estimator,
                                        *with_std("0.0001")->estimator, weights);
            });
  });
}

TEST_CASE("Estimators refuse a theta of another size") {
  ForEachEstimator([](const Built<ConfiguredEstimator>& estimator, const WorkerWeights& weights) {
    CheckWrongThetaThrows(*estimator.made->estimator, weights);
  });
}

TEST_CASE("Estimators refuse the state of an estimator of another type or task") {
  const auto optimizer = EveryOptimizer().front();
  const WorkerWeights weights = DrawWeights(*optimizer.made);
  const auto tasks = OneOfEachType(EveryTask());
  REQUIRE(tasks.size() >= 2);
  const auto here = EveryEstimator(optimizer.made, tasks[0].config);
  const auto there = EveryEstimator(optimizer.made, tasks[1].config);
  ForEach(here, [&](const Built<ConfiguredEstimator>& estimator) {
    ForEach(here, [&](const Built<ConfiguredEstimator>& other) {
      const bool stateless = FirstState(*estimator.made->estimator, weights).size() == 0 &&
                             FirstState(*other.made->estimator, weights).size() == 0;
      if (other.config.Type() != estimator.config.Type() && !stateless) {
        CheckStateOfAnotherThrows(*estimator.made->estimator, *other.made->estimator, weights);
      }
    });
    ForEach(there, [&](const Built<ConfiguredEstimator>& other) {
      const EstimatorState state = FirstState(*other.made->estimator, weights);
      if (state.size() > 0) {
        CheckStateOfAnotherThrows(*estimator.made->estimator, *other.made->estimator, weights);
      }
    });
  });
}

}  // namespace
}  // namespace lopt::contracts
