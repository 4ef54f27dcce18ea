// Families over families where they are used: trainings, configs, runs that are resumed.
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/tasks/registry.h"
#include "tests/error_of.h"
#include "tests/learner_local_job.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

std::shared_ptr<const TaskFamily> Make(const std::string& config) {
  static const TaskResources resources("");
  return TaskRegistry().Make(Config::Parse(config, "a task"), resources);
}

TrainingCurve Train(const TaskFamily& task, const LearnedOptimizer& optimizer,
                    const Eigen::VectorXf& theta) {
  const std::vector<int64_t> judge_at = {30};
  Workspace scratch;
  return TrainTask(task, *optimizer.Bind(task.params_layout(), AsSpan(theta)), judge_at,
                   Split::kTest, {.key = KeyFromSeed(3)}, scratch);
}

// The training of the scaled task is that of the task with the params divided by the scale.
void CheckSameTraining(const TrainingCurve& scaled, const TrainingCurve& plain, float scale) {
  CHECK(scaled.train_loss == plain.train_loss);
  CHECK(scaled.train_accuracy == plain.train_accuracy);
  CHECK(scaled.judged[0].loss == plain.judged[0].loss);
  std::vector<float> params = scaled.params;
  for (float& param : params) param *= scale;
  CHECK(params == plain.params);
  CHECK(plain.train_loss.back() < plain.train_loss.front());
}

constexpr const char* kMlp =
    R"({"type": "ImageMLP", "image_size": 4, "hidden": [5], "batch_size": 16, "data": "glyphs"})";

std::string Scaled(const std::string& task, const std::string& level, const std::string& scale) {
  return R"({"type": "ReparamWeights", "levels": [")" + level + R"("], "ranges": [)" + scale +
         ", " + scale + R"(], "task": )" + task + "}";
}

TEST_CASE("SGD of lr on weights scaled by s is SGD of lr s^2, bit for bit at powers of two") {
  const std::string quadratic = R"({"type": "FixedDimQuadraticFamily", "dim": 9})";
  for (const auto& [task, rate] :
       {std::pair<std::string, double>(kMlp, 0.25), {quadratic, 0.125}}) {
    const LearnableSGD plain({.learning_rate = rate});
    const TrainingCurve wanted = Train(*Make(task), plain, plain.InitTheta(Key{}));
    const LearnableSGD slow({.learning_rate = rate / 16});
    const LearnableSGD fast({.learning_rate = rate * 4});
    for (const std::string level : {"global", "tensor", "parameter"}) {
      CAPTURE(level);
      CheckSameTraining(Train(*Make(Scaled(task, level, "4")), slow, slow.InitTheta(Key{})), wanted,
                        4);
      CheckSameTraining(Train(*Make(Scaled(task, level, "0.5")), fast, fast.InitTheta(Key{})),
                        wanted, 0.5F);
    }
  }
}

TEST_CASE("Adam of lr on weights scaled by s is Adam of lr s, bit for bit at powers of two") {
  const std::string task = R"({"type": "FixedDimQuadraticFamily", "dim": 9})";
  const auto train = [&](const std::string& config, double rate) {
    const LearnableAdam adam({.learning_rate = rate, .epsilon_root = 0});
    Eigen::VectorXf theta = adam.InitTheta(Key{});
    theta[3] = -std::numeric_limits<float>::infinity();  // epsilon 0
    return Train(*Make(config), adam, theta);
  };
  const TrainingCurve wanted = train(task, 0.125);
  CheckSameTraining(train(Scaled(task, "global", "8"), 0.015625), wanted, 8);
  CheckSameTraining(train(Scaled(task, "parameter", "0.25"), 0.5), wanted, 0.25F);
}

// The small experiment with families over families in place of its tasks.
Config WrappedExperiment() {
  return WriteOptions("", SmallExperiment(2))
      .With("estimators.0.task", R"({"type": "SampledFamily", "weights": [1, 3], "tasks": [
              {"type": "FixedDimQuadraticFamily", "dim": 10},
              {"type": "DelayedGradients", "delay": 2, "task": {"type": "ReparamWeights",
                "levels": ["none", "tensor"], "task": {"type": "QuadraticTask"}}}]})")
      .With("estimators.1.task", R"({"type": "ReparamWeights", "task": {"type": "DelayedGradients",
              "task": {"type": "ImageMLP", "image_size": 8, "hidden": [4], "data": "glyphs"}}})")
      .With("estimators.1.task.task.task.batch_size", "8")
      .With("estimators.2.task", R"({"type": "ESTask", "pairs": 2,
              "task": {"type": "SubsampleDirections", "task": {"type": "TrainedStart", "steps": 5,
                "fresh_tensors": 0, "task": {"type": "QuadraticTask"},
                "earlier": {"type": "FixedDimQuadraticFamily", "dim": 2}}}})")
      .With("estimators[2].task.task.task.task.dim", "2");
}

TEST_CASE("A family inside a family is a part of the config, checked to its end and written out") {
  const Config written = WriteOptions("", ReadOptions<MetaTrainConfig>(WrappedExperiment()));
  CHECK(WriteOptions("", ReadOptions<MetaTrainConfig>(written)).Dump() == written.Dump());
  const std::string task = ReadOptions<MetaTrainConfig>(written).estimators[1].Dump(-1);
  CHECK(task.find(R"("task":{"type":"ReparamWeights","task":{"type":"DelayedGradients","task":)"
                  R"({"type":"ImageMLP","image_size":8,)") != std::string::npos);
  CHECK(task.find(R"("delay":1},"levels":["global"],"ranges":[0.01,100.0]})") != std::string::npos);
  const auto error = [](const std::string& key, const std::string& value) {
    return ErrorOf([&] { ReadOptions<MetaTrainConfig>(WrappedExperiment().With(key, value)); });
  };
  CHECK(error("estimators.1.task.task.task.batch_size", "0") ==
        "config: 'estimators[1].task.task.task.batch_size' must be an integer in [1, 1000000], got "
        "0");
  CHECK(error("estimators.0.task.tasks.1.dlay", "3") ==
        "config: unknown key 'estimators[0].task.tasks[1].dlay'; valid keys: task, delay; did you "
        "mean 'delay'?");
  CHECK(error("estimators.0.task.tasks.1.task.levels", R"(["tenser"])") ==
        "config: 'estimators[0].task.tasks[1].task.levels[0]' must be one of none, global, tensor, "
        "parameter, got \"tenser\"; did you mean 'tensor'?");
  CHECK(error("estimators.2.task.task.task", R"({"type": "QuadratikTask"})")
            .find("'estimators[2].task.task.task.type' is 'QuadratikTask'; valid types of task: "
                  "QuadraticTask, ") != std::string::npos);
}

TEST_CASE("A run on families over families goes on from a checkpoint, bit for bit, on any ranks") {
  auto config = ReadOptions<MetaTrainConfig>(WrappedExperiment());
  config.eval_every = 5;
  config.eval_steps = 2;
  config.eval_seeds = 1;
  const TempDirectory whole;
  RunMetaTraining(config, {.out_dir = whole.path()});
  const TempDirectory parts;
  config.meta_steps = 9;
  RunMetaTraining(config, {.out_dir = parts.path()});
  config.meta_steps = 20;
  const LocalJob job = RunLocalJob(config, 2, {.out_dir = parts.path(), .resume = true});
  CHECK(job.errors == std::vector<std::string>(2));
  CHECK(FinalTheta(parts.path()) == FinalTheta(whole.path()));
  CHECK(MetricsLines(parts.path()) == MetricsLines(whole.path()));
}

}  // namespace
}  // namespace lopt
