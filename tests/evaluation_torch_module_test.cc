#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/parallel.h"
#include "lopt/evaluation/evaluate.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

const char* const kTask = R"({"type": "TorchImageMLP", "hidden": [8], "batch_size": 16})";

bool Near(double a, double b) { return std::abs(a - b) <= 1e-4 * (1 + std::abs(b)); }

TEST_CASE("Torch trainings that advance together have the curves of each alone, to rounding") {
  const auto task = TaskRegistry().Make(Config::Parse(kTask, "test"), TaskResources(""));
  REQUIRE(task->PreferredRows() == TaskFamily::kAllRows);
  const MLPLOpt optimizer;
  const Eigen::VectorXf theta = optimizer.InitTheta(KeyFromSeed(3));
  const auto rule = optimizer.Bind(task->params_layout(), AsSpan(theta));
  const std::vector<int64_t> judge_at = {5, 20};
  std::vector<TrainingSource> sources;
  for (uint64_t seed = 0; seed < 5; ++seed) sources.push_back({.key = KeyFromSeed(seed)});
  Workspace scratch;
  const std::vector<TrainingCurve> together =
      TrainTasks(*task, *rule, judge_at, Split::kTest, sources, scratch);
  for (size_t i = 0; i < sources.size(); ++i) {
    const TrainingCurve alone =
        TrainTask(*task, *rule, judge_at, Split::kTest, sources[i], scratch);
    for (size_t step = 0; step < 20; ++step) {
      CHECK(Near(together[i].train_loss[step], alone.train_loss[step]));
      CHECK(Near(together[i].train_accuracy[step], alone.train_accuracy[step]));
    }
    for (size_t j = 0; j < 2; ++j) CHECK(Near(together[i].judged[j].loss, alone.judged[j].loss));
  }
}

TEST_CASE("An evaluation of a torch task has the results of the native one, to rounding") {
  const auto run = [](const char* type, int threads) {
    EvaluationConfig config = ReadEvaluationConfig(Config::Parse(
        R"({"steps": [4, 10], "seeds": 3, "trials": 3, "tuning_seeds": 2, "tasks": {"images":
            {"task": {"type": "ImageMLP", "hidden": [8], "batch_size": 16}}}})",
        "test"));
    config.tasks[0].task = config.tasks[0].task.With("type", type);
    std::vector<RunResult> results;
    ThreadPool(threads).Run([&] {
      results = Evaluation(config, {.baselines = BaselinesNamed("SGDM,Adam-cosine")}).Run().results;
    });
    return results;
  };
  const std::vector<RunResult> native = run("ImageMLP", 2);
  const std::vector<RunResult> torch = run("TorchImageMLP", 2);
  const std::vector<RunResult> one_thread = run("TorchImageMLP", 1);
  REQUIRE(torch.size() == native.size());
  for (size_t i = 0; i < torch.size(); ++i) {
    CHECK(torch[i].learning_rate == native[i].learning_rate);
    for (size_t j = 0; j < 2; ++j) {
      CHECK(Near(torch[i].final_train_loss[j], native[i].final_train_loss[j]));
      CHECK(Near(torch[i].test_loss[j], native[i].test_loss[j]));
    }
    CHECK(torch[i].train_loss == one_thread[i].train_loss);
    CHECK(torch[i].test_loss == one_thread[i].test_loss);
  }
}

}  // namespace
}  // namespace lopt
