#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/tensorboard.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/learner/train/trainer.h"
#include "tests/farthest.h"
#include "tests/learner_local_job.h"
#include "tests/learner_local_training.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"
#include "tests/text_parts.h"

namespace lopt {
namespace {

// Torch tasks with and without a model state, whose episodes end inside windows.
MetaTrainConfig OfTorchTasks(
    int64_t workers, int64_t meta_steps, const std::string& device,
    const std::string& optimizer = R"({"type": "MLPLOpt", "hidden_size": 4, "step_mult": 0.01})") {
  auto config = ReadOptions<MetaTrainConfig>(Config::Parse(R"({
    "learned_optimizer": {"type": "MLPLOpt"}, "theta_opt": {"type": "SGD", "learning_rate": 1e-2},
    "estimators": [
      {"type": "TruncatedPES", "num_tasks": 3, "trunc_length": 5, "std": 0.1,
       "task": {"type": "TorchImageMLP", "image_size": 4, "hidden": [4], "norm": "batch",
                "activation": "tanh", "batch_size": 8, "data": "glyphs"},
       "lengths": {"type": "LogUniformLengthSchedule", "min_length": 4, "max_length": 12}},
      {"type": "GPESK", "K": 3, "num_tasks": 2, "trunc_length": 5, "std": 0.1,
       "meta_loss": "train", "task": {"type": "TorchSequenceRegression", "hidden": 3, "steps": 4},
       "lengths": {"type": "ConstantTruncationSchedule", "total_length": 7}},
      {"type": "FullES", "num_tasks": 2, "std": 0.1,
       "task": {"type": "TorchImageConv", "image_size": 4, "channels": [2], "strides": [2],
                "batch_size": 8, "activation": "tanh", "data": "glyphs"},
       "lengths": {"type": "LogUniformLengthSchedule", "min_length": 3, "max_length": 8}}
    ],
    "seed": 11, "checkpoint_seconds": 0, "checkpoint_steps": 2
  })",
                                                           "torch tasks on a device"));
  config.learned_optimizer = Config::Parse(optimizer, "test");
  config.workers = workers;
  config.meta_steps = meta_steps;
  config.device = device;
  return config;
}

Eigen::VectorXf Train(int threads) {
  const auto config = ReadOptions<MetaTrainConfig>(Config::Parse(
      R"({"learned_optimizer": {"type": "MLPLOpt", "hidden_size": 8},
          "theta_opt": {"type": "Adam", "learning_rate": 0.001}, "workers": 2, "meta_steps": 4,
          "estimators": [
            {"type": "TruncatedPES", "num_tasks": 3, "trunc_length": 5,
             "task": {"type": "TorchImageMLP", "hidden": [16], "batch_size": 32},
             "lengths": {"type": "LogUniformLengthSchedule", "min_length": 4, "max_length": 12}},
            {"type": "FullES", "num_tasks": 2, "task": {"type": "TorchImageMLP", "image_size": 5,
                                                        "hidden": [7], "activation": "tanh"},
             "lengths": {"type": "ConstantTruncationSchedule", "total_length": 10}},
            {"type": "FullGrad", "num_tasks": 2, "task": {"type": "QuadraticTask"},
             "lengths": {"type": "ConstantTruncationSchedule", "total_length": 6}},
            {"type": "TruncatedGrad", "num_tasks": 3, "trunc_length": 4,
             "task": {"type": "ImageMLP", "image_size": 4, "hidden": [5], "batch_size": 8},
             "lengths": {"type": "LogUniformLengthSchedule", "min_length": 4, "max_length": 9}}
          ]})",
      "test"));
  MetaTrainerOptions options;
  options.threads = threads;
  return RunMetaTraining(config, options).learner.theta;
}

TrainConfig OfTorchModel(const char* task, int64_t workers, int64_t steps = 9) {
  TrainConfig config;
  config.task = Config::Parse(task, "test");
  config.optimizer = Config::Parse(R"({"type": "SGD", "learning_rate": 0.1})", "test");
  config.workers = workers;
  config.steps = steps;
  config.eval_every = 3;
  return config;
}

}  // namespace

TEST_CASE("Meta-training on torch tasks gives the same theta on 1, 2 and 4 threads") {
  const Eigen::VectorXf theta = Train(1);
  REQUIRE(theta.allFinite());
  CHECK(theta == Train(2));
  CHECK(theta == Train(4));
}

TEST_CASE("What updates on a device add to theta is what they add on the processor") {
  for (const auto& [optimizer, meta_steps] :
       {std::tuple{R"({"type": "MLPLOpt", "hidden_size": 4, "step_mult": 0.01})", 10},
        std::tuple{R"({"type": "AdafacMLPLOpt", "step_mult": 0.01})", 3},
        std::tuple{R"({"type": "Celo2"})", 3}}) {
    const std::string name = optimizer;
    CAPTURE(name);
    const MetaTrainConfig config = OfTorchTasks(1, meta_steps, "cpu", optimizer);
    const Experiment experiment(config);
    const Eigen::VectorXd start =
        experiment.learner.Init(ThetaKey(experiment.run_key)).theta.cast<double>();
    const auto update = [&](const MetaTrainConfig& of) -> Eigen::VectorXd {
      return RunMetaTraining(of, {}).learner.theta.cast<double>() - start;
    };
    const Eigen::VectorXd host = update(config);
    const Eigen::VectorXd device = update(OfTorchTasks(1, meta_steps, "emulated", optimizer));
    // Far above the rounding of theta. Losses are rounded to 1e-7, and the differences that the
    // estimates are made of are a thousandth of them: 1e-4.
    CHECK(host.norm() > 1e-4);
    CHECK_LT((device - host).norm(), 5e-4 * host.norm());
    CHECK(device != host);
  }
}

TEST_CASE("Torch tasks on a device give the same bits on any ranks and threads, and resumed") {
  const TempDirectory whole;
  const TempDirectory parts;
  const MetaTrainConfig config = OfTorchTasks(3, 4, "emulated");
  RunMetaTraining(config, {.out_dir = whole.path(), .threads = 2});
  for (const auto& [ranks, steps] : {std::pair{1, 1}, std::pair{3, 3}, std::pair{2, 4}}) {
    const LocalJob job = RunLocalJob(OfTorchTasks(3, steps, "emulated"), ranks,
                                     {.out_dir = parts.path(), .resume = steps > 1});
    CHECK(job.errors == std::vector<std::string>(static_cast<size_t>(ranks)));
  }
  CHECK(FinalTheta(parts.path()) == FinalTheta(whole.path()));
  CHECK(MetricsLines(parts.path()) == MetricsLines(whole.path()));
}

// The bytes of all event files of a run.
std::string Events(const std::string& directory) {
  std::string events;
  for (const std::string& name : EventFiles(directory)) {
    events += ReadTextFile(directory + "/" + name);
  }
  return events;
}

TEST_CASE("A run's event files have the graphs of its torch tasks, once, also when it is resumed") {
  const TempDirectory scratch;
  RunMetaTraining(OfTorchTasks(1, 1, "cpu"), {.out_dir = scratch / "meta"});
  RunMetaTraining(OfTorchTasks(1, 2, "cpu"), {.out_dir = scratch / "meta", .resume = true});
  CHECK_EQ(EventFiles(scratch / "meta").size(), 2);
  // A node's name behind its field and length.
  CHECK_EQ(Count(Events(scratch / "meta"),
                 "\x0a\x16"
                 "0_TorchImageMLP/losses"),
           1);
  CHECK_EQ(Count(Events(scratch / "meta"), "1_TorchSequenceRegression/losses\x12\x06Output"), 1);
  CHECK_EQ(Count(Events(scratch / "meta"), "2_TorchImageConv/losses\x12\x06Output"), 1);
  const TrainConfig config =
      OfTorchModel(R"({"type": "TorchSequenceRegression", "hidden": 3, "steps": 4})", 1, 2);
  RunTraining(config, {.out_dir = scratch / "train"});
  CHECK_EQ(Count(Events(scratch / "train"), "TorchSequenceRegression/losses\x12\x06Output"), 1);
  MetaTrainConfig twice = OfTorchTasks(1, 1, "cpu");
  twice.estimators[0] = twice.estimators[1];
  RunMetaTraining(twice, {.out_dir = scratch / "twice"});
  CHECK_EQ(Count(Events(scratch / "twice"), "TorchSequenceRegression/losses\x12\x06Output"), 1);
}

TEST_CASE("A torch model has the same bytes from one rank and from 2 and 3, stopped or not") {
  for (const char* task :
       {R"({"type": "TorchImageMLP", "image_size": 4, "hidden": [4], "norm": "batch",
            "batch_size": 8, "data": "glyphs"})",
        R"({"type": "TorchImageConv", "image_size": 4, "channels": [2], "strides": [2],
            "batch_size": 8, "data": "glyphs"})",
        R"({"type": "TorchSequenceRegression", "hidden": 3, "steps": 4})"}) {
    CAPTURE(std::string(task));
    const TempDirectory scratch;
    const TrainConfig config = OfTorchModel(task, 4);
    const TrainResult one = RunTraining(config, {.out_dir = scratch / "one", .threads = 3});
    CHECK(one.state.params != RunTraining(OfTorchModel(task, 4, 1), {}).state.params);
    for (const int ranks : {2, 3}) {
      CAPTURE(ranks);
      const TrainOptions options{.out_dir = scratch / std::to_string(ranks)};
      std::atomic<bool> stop = false;
      TrainOptions stopped = options;
      stopped.stop = &stop;
      stopped.on_step = [&](const TrainProgress& p) { stop = p.step == 4; };
      for (const std::string& error : TrainOnRanks(config, ranks, stopped)) {
        CHECK_EQ(error, "no error");
      }
      CHECK_EQ(RunDirectory(options.out_dir).ReadManifest().updates, 4);
      TrainOptions resumed = options;
      resumed.resume = true;
      for (const std::string& error : TrainOnRanks(config, ranks, resumed)) {
        CHECK_EQ(error, "no error");
      }
      for (const char* file : {"/model.safetensors", "/metrics.jsonl"}) {
        CHECK_EQ(ReadFile(options.out_dir + file), ReadFile((scratch / "one") + file));
      }
    }
  }
}

TEST_CASE("A torch model's training is that of the native one, to rounding") {
  for (
      const auto& [torch, native] :
      {std::pair{R"({"type": "TorchImageMLP", "image_size": 4, "hidden": [6], "batch_size": 8,
                      "data": "glyphs"})",
                 R"({"type": "ImageMLP", "image_size": 4, "hidden": [6], "batch_size": 8,
                      "data": "glyphs"})"},
       std::pair{
           R"({"type": "TorchImageConv", "image_size": 4, "channels": [2], "strides": [2], "batch_size": 8,
                      "data": "glyphs"})",
           R"({"type": "ImageConv", "image_size": 4, "channels": [2], "strides": [2], "batch_size": 8,
                      "data": "glyphs"})"}}) {
    const std::string name = torch;
    CAPTURE(name);
    const Eigen::VectorXf start = RunTraining(OfTorchModel(native, 4, 1), {}).state.params;
    const Eigen::VectorXf trained = RunTraining(OfTorchModel(native, 4), {}).state.params;
    const Eigen::VectorXf by_torch = RunTraining(OfTorchModel(torch, 4), {}).state.params;
    CHECK_GT((trained - start).cwiseAbs().maxCoeff(), 1e-2);
    CHECK_LT(Farthest(by_torch, trained), 1e-5);
  }
}

}  // namespace lopt
