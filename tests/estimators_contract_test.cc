#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/estimators/check/checks.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/registry.h"
#include "lopt/lopt/check/optimizer_checks.h"
#include "lopt/tasks/check/task_checks.h"
#include "tests/contracts/build.h"
#include "tests/contracts/passed.h"
#include "tests/error_of.h"

// The checks of `lopt check` over every registered task family, learned optimizer, schedule and
// estimator. A type
// that is added to a registry is covered here as it stands; one that cannot be built from its
// defaults needs a line in tests/contracts/examples.h.

namespace lopt::contracts {
namespace {

using checks::EstimatorChecks;
using checks::EstimatorUnderCheck;
using checks::OptimizerChecks;
using checks::ProblemChecks;
using checks::ProblemUnderCheck;
using checks::ScheduleChecks;
using checks::TaskChecks;
using checks::TrainedBy;

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

// What is checked: in the nightly tests all examples, and all pairs of two kinds; or an example of
// each type, with one of the other kind in turn.
enum class Extent { kAll, kInTurn };

std::vector<Built<TaskFamily>> Tasks(Extent extent) {
  return extent == Extent::kAll ? EveryTask() : OneOfEachType(EveryTask());
}

template <class A, class B, class Check>
void ForEachPair(Extent extent, const std::vector<Built<A>>& as, const std::vector<Built<B>>& bs,
                 const Check& check) {
  REQUIRE_FALSE(as.empty());
  REQUIRE_FALSE(bs.empty());
  const size_t turns = std::max(as.size(), bs.size());
  for (size_t i = 0; i < (extent == Extent::kAll ? as.size() * bs.size() : turns); ++i) {
    const Built<A>& a = as[extent == Extent::kAll ? i / bs.size() : i % as.size()];
    const Built<B>& b = bs[i % bs.size()];
    INFO(a.name);
    INFO(b.name);
    check(a, b);
  }
}

// Tasks trained by optimizers in short episodes.
void EveryTrainingKeeps(Extent extent, const Names& names) {
  ForEachPair(extent, Tasks(extent), OneOfEachType(EveryOptimizer()),
              [&](const Built<TaskFamily>& task, const Built<LearnedOptimizer>& optimizer) {
                CheckKeeps(ProblemChecks(), names, TrainedBy(optimizer.made, task.made));
              });
}

void EveryTaskKeeps(Extent extent, const Names& names) {
  ForEach(Tasks(extent),
          [&](const Built<TaskFamily>& task) { CheckKeeps(TaskChecks(), names, *task.made); });
}

WorkerWeights DrawWeights(const LearnedOptimizer& optimizer) {
  const std::vector<float> theta = checks::DrawTheta(optimizer, 1);
  return {.theta = Eigen::Map<const Eigen::VectorXf>(theta.data(), std::ssize(theta)), .outer = {}};
}

EstimatorUnderCheck UnderCheck(const Built<ConfiguredEstimator>& built,
                               const LearnedOptimizer& optimizer) {
  return {.estimator = built.made->estimator,
          .weights = DrawWeights(optimizer),
          .inner_steps = built.example.inner_steps};
}

// The estimators of a task: all, or the one whose turn it is. Those of the first are all.
std::vector<Built<ConfiguredEstimator>> EstimatorsOf(Extent extent, size_t turn,
                                                     const Built<LearnedOptimizer>& optimizer,
                                                     const Built<TaskFamily>& task) {
  auto all = EveryEstimator(optimizer.made, task.config);
  if (extent == Extent::kAll || turn == 0) return all;
  return {all[turn % all.size()]};
}

// Every estimator on every task, trained by the first optimizer; then by every optimizer on the
// first task.
void EveryEstimatorKeeps(Extent extent, const Names& names) {
  const auto tasks = Tasks(extent);
  const auto optimizers = OneOfEachType(EveryOptimizer());
  const auto run = [&](size_t turn, const Built<LearnedOptimizer>& optimizer,
                       const Built<TaskFamily>& task) {
    INFO(optimizer.name);
    INFO(task.name);
    ForEach(EstimatorsOf(extent, turn, optimizer, task),
            [&](const Built<ConfiguredEstimator>& estimator) {
              CheckKeeps(EstimatorChecks(), names, UnderCheck(estimator, *optimizer.made));
              CHECK(estimator.made->weight > 0);
              CHECK_FALSE(estimator.made->task.empty());
            });
  };
  for (size_t i = 0; i < tasks.size(); ++i) run(i, optimizers.front(), tasks[i]);
  for (size_t i = 1; i < optimizers.size(); ++i) run(i, optimizers[i], tasks.front());
}

void EveryMetaLossKeeps(const std::vector<Built<TaskFamily>>& tasks) {
  const auto optimizer = EveryOptimizer().front();
  ForEach(tasks, [&](const Built<TaskFamily>& task) {
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
      CheckKeeps(ProblemChecks(), {"windows", "meta loss"},
                 TrainedBy(optimizer.made, task.made, options));
    }
  });
}

void PairsShare(Extent extent) {
  const auto optimizer = EveryOptimizer().front();
  const auto tasks = Tasks(extent);
  for (size_t i = 0; i < tasks.size(); ++i) {
    ForEach(EstimatorsOf(extent, i, optimizer, tasks[i]),
            [&](const Built<ConfiguredEstimator>& estimator) {
              if (estimator.example.needs_derivatives) return;  // has no perturbations
              EstimatorUnderCheck subject = UnderCheck(estimator, *optimizer.made);
              subject.with_std = [&](double std) {
                const Config config = estimator.config.With("task", tasks[i].config.Dump(-1))
                                          .With("std", std::to_string(std));
                return EstimatorRegistry().Make(config, optimizer.made, Resources())->estimator;
              };
              CheckKeeps(EstimatorChecks(), {"pairs"}, subject);
            });
  }
}

// Checks that take long have test cases of their own.
const Names kLongTaskChecks = {"gradient", "threads", "examples"};
const Names kLongTrainingChecks = {"windows", "pairs", "episodes"};
const Names kLongEstimatorChecks = {"threads", "resume", "pairs", "other states"};

Names OtherTrainingChecks() {
  Names names = AllBut(kLongTrainingChecks, ProblemChecks());
  std::erase(names, "cost");  // measured, not compared
  return names;
}

TEST_CASE("Every registered type can be built") {
  const auto optimizers = EveryOptimizer();
  CHECK(OneOfEachType(optimizers).size() == OptimizerRegistry().table().entries().size());
  CHECK(OneOfEachType(EverySchedule()).size() == ScheduleRegistry().table().entries().size());
  const auto tasks = EveryTask();
  const size_t left_out = HasDerivatives(tasks.front().config) ? 0 : 2;  // FullGrad, TruncatedGrad
  CHECK(OneOfEachType(EveryEstimator(optimizers.front().made, tasks.front().config)).size() ==
        EstimatorRegistry().table().entries().size() - left_out);
}

TEST_CASE("A type that cannot be built from its defaults is named with the way out") {
  TypeTable table("dish");
  table.Add({"Soup", "Has no default.", [](FieldVisitor&) {}});
  const auto make = [](const Config&) -> std::shared_ptr<const int> { Fail("no salt"); };
  const std::string error = ErrorOf([&] { BuildEvery<int>(table, {}, "{}", make); });
  CHECK(error.find("cannot build dish 'Soup' from {\"type\":\"Soup\"}: no salt") !=
        std::string::npos);
  CHECK(error.find("tests/contracts/examples.h") != std::string::npos);
  CHECK(ErrorOf([&] {
          BuildEvery<int>(table, {{.config = R"({"type": "Salad"})"}}, "{}", make);
        }).find("Salad") != std::string::npos);
}

TEST_CASE("Gradients of every task agree with central differences of its loss") {
  EveryTaskKeeps(Extent::kInTurn, {"gradient"});
}

TEST_CASE("Tasks evaluated on many threads give the bits of one thread") {
  EveryTaskKeeps(Extent::kInTurn, {"threads"});
}

TEST_CASE("Splits of a data set follow one another and explicit examples are averaged over") {
  EveryTaskKeeps(Extent::kInTurn, {"examples"});
}

TEST_CASE("Every task keeps the other promises of task families") {
  EveryTaskKeeps(Extent::kInTurn, AllBut(kLongTaskChecks, TaskChecks()));
}

TEST_CASE("Every optimizer keeps the promises of learned optimizers") {
  ForEach(EveryOptimizer(), [](const Built<LearnedOptimizer>& optimizer) {
    CheckKeeps(OptimizerChecks(), AllBut({}, OptimizerChecks()), *optimizer.made);
  });
}

TEST_CASE("Schedules give lengths that are functions of the key") {
  ForEach(EverySchedule(), [](const Built<TruncationSchedule>& schedule) {
    CheckKeeps(ScheduleChecks(), AllBut({}, ScheduleChecks()), *schedule.made);
  });
}

TEST_CASE("A run of 50 steps is two of 25, bit for bit, for every task") {
  EveryTrainingKeeps(Extent::kInTurn, {"windows"});
}

TEST_CASE("Pairs without a perturbation do not differ, for every task") {
  EveryTrainingKeeps(Extent::kInTurn, {"pairs"});
}

TEST_CASE("Episodes end independently of theta, for every task") {
  EveryTrainingKeeps(Extent::kInTurn, {"episodes"});
}

TEST_CASE("Every task that is trained keeps the other promises of inner problems") {
  EveryTrainingKeeps(Extent::kInTurn, OtherTrainingChecks());
}

TEST_CASE("Every choice of the meta-loss splits runs and keeps pairs together") {
  EveryMetaLossKeeps({EveryTask().front(), EveryTask().back()});
}

TEST_CASE("Runs under every schedule split") {
  const auto optimizer = EveryOptimizer().front();
  const auto task = EveryTask().front();
  ForEach(EverySchedule(), [&](const Built<TruncationSchedule>& schedule) {
    const auto problem = std::make_shared<LoptProblem>(task.made, optimizer.made, schedule.made,
                                                       LoptProblemOptions{});
    CHECK(problem->EpisodesEnd() == schedule.made->EpisodesEnd());
    ProblemUnderCheck subject = TrainedBy(optimizer.made, task.made);
    subject.problem = problem;
    CheckKeeps(ProblemChecks(), {"replicas"}, subject);
  });
}

TEST_CASE("Estimates have the same bits on any number of threads") {
  EveryEstimatorKeeps(Extent::kInTurn, {"threads"});
}

TEST_CASE("An estimator goes on from its saved state, bit for bit") {
  EveryEstimatorKeeps(Extent::kInTurn, {"resume"});
}

TEST_CASE("Every estimator keeps the other promises of gradient estimators") {
  EveryEstimatorKeeps(Extent::kInTurn, AllBut(kLongEstimatorChecks, EstimatorChecks()));
}

TEST_CASE("The pairs of an estimator share their tasks, params and data") {
  PairsShare(Extent::kInTurn);
}

TEST_SUITE("nightly") {
  TEST_CASE("Every example of every task keeps the promises of task families") {
    EveryTaskKeeps(Extent::kAll, AllBut({}, TaskChecks()));
  }

  TEST_CASE("A run of 50 steps is two of 25, bit for bit, for every task and optimizer") {
    EveryTrainingKeeps(Extent::kAll, {"windows"});
  }

  TEST_CASE("Pairs without a perturbation do not differ, for every task and optimizer") {
    EveryTrainingKeeps(Extent::kAll, {"pairs"});
  }

  TEST_CASE("Episodes end independently of theta, for every task and optimizer") {
    EveryTrainingKeeps(Extent::kAll, {"episodes"});
  }

  TEST_CASE("Every task trained by every optimizer keeps the other promises of inner problems") {
    EveryTrainingKeeps(Extent::kAll, OtherTrainingChecks());
  }

  TEST_CASE("Every choice of the meta-loss of every task splits runs and keeps pairs together") {
    EveryMetaLossKeeps(EveryTask());
  }

  TEST_CASE("Estimates of every task have the same bits on any number of threads") {
    EveryEstimatorKeeps(Extent::kAll, {"threads"});
  }

  TEST_CASE("An estimator of every task goes on from its saved state, bit for bit") {
    EveryEstimatorKeeps(Extent::kAll, {"resume"});
  }

  TEST_CASE("Every estimator of every task keeps the other promises of gradient estimators") {
    EveryEstimatorKeeps(Extent::kAll, AllBut(kLongEstimatorChecks, EstimatorChecks()));
  }

  TEST_CASE("The pairs of an estimator of every task share their tasks, params and data") {
    PairsShare(Extent::kAll);
  }
}

TEST_CASE("Estimators refuse the state of an estimator of another type or task") {
  const auto optimizer = EveryOptimizer().front();
  const WorkerWeights weights = DrawWeights(*optimizer.made);
  const auto tasks = OneOfEachType(EveryTask());
  REQUIRE(tasks.size() >= 2);
  const auto here = EveryEstimator(optimizer.made, tasks[0].config);
  const auto there = EveryEstimator(optimizer.made, tasks[1].config);
  const auto has_state = [&](const Built<ConfiguredEstimator>& built) {
    return built.made->estimator->InitWorkerState(weights, Key{}).size() > 0;
  };
  ForEach(here, [&](const Built<ConfiguredEstimator>& estimator) {
    EstimatorUnderCheck subject = UnderCheck(estimator, *optimizer.made);
    for (const auto& other : here) {
      if (other.config.Type() != estimator.config.Type() &&
          (has_state(estimator) || has_state(other))) {
        subject.others.push_back(other.made->estimator);
      }
    }
    for (const auto& other : there) {
      if (has_state(other)) subject.others.push_back(other.made->estimator);
    }
    CheckKeeps(EstimatorChecks(), {"other states"}, subject);
  });
}

}  // namespace
}  // namespace lopt::contracts
