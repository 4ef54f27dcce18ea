#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/process_identity.h"
#include "lopt/base/run_lock.h"
#include "lopt/base/tensorboard.h"
#include "lopt/base/wakeup.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/job/run_writer.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/run/best_theta.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/metrics_log.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/learner/run/update_metrics.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/registry.h"
#include "tests/error_of.h"
#include "tests/learner_fakes.h"
#include "tests/learner_local_job.h"
#include "tests/learner_runs.h"
#include "tests/like_system_environment.h"
#include "tests/logged_lines.h"
#include "tests/replace_in_file.h"
#include "tests/temp_directory.h"
#include "tests/text_parts.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

MetaTrainResult Train(const MetaTrainConfig& config, const std::string& directory = "",
                      int threads = 1) {
  return RunMetaTraining(config, {.out_dir = directory, .threads = threads});
}

MetaTrainResult Resume(const MetaTrainConfig& config, const std::string& directory,
                       int threads = 1) {
  return RunMetaTraining(config, {.out_dir = directory, .threads = threads, .resume = true});
}

std::string ErrorOf(const MetaTrainConfig& config, const MetaTrainerOptions& options) {
  try {
    RunMetaTraining(config, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// An estimator whose gradient stops being a number at outer step 3.
struct ExplodingOptions {
  void Visit(FieldVisitor&) {}
};

MetaTrainConfig Exploding(const std::string& policy) {
  const auto add = [] {
    EstimatorRegistry().Add<ExplodingOptions>(
        "Exploding", "Its gradient is not finite at outer step 3.",
        [](const ExplodingOptions&, const std::shared_ptr<const LearnedOptimizer>&,
           const TaskResources&) {
          return Configured([](const WorkerWeights& weights, Key, int64_t) {
            const float value =
                weights.outer.outer_step == 3 ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
            return GradientEstimate{.gradient = Eigen::VectorXf::Constant(1, value),
                                    .mean_loss = value,
                                    .counts = {},
                                    .metrics = {}};
          });
        });
    return true;
  };
  static const bool added = add();
  CHECK(added);
  return ReadOptions<MetaTrainConfig>(Config::Parse(
      R"({"learned_optimizer": {"type": "LearnableSGD", "learning_rate": 1},
          "theta_opt": {"type": "SGD", "learning_rate": 1},
          "estimators": [{"type": "Exploding"}], "meta_steps": 6,
          "non_finite_gradient": ")" +
          policy + "\"}",
      "test"));
}

// A task that tells the learning rate of the optimizer: after a step from 0 its loss is the
// distance of the logarithm of the learning rate from 8, rounded; before it, 1.
struct LearningRateOptions {
  bool number = true;  // false: every loss is NaN
  void Visit(FieldVisitor& v) { v.Field("number", &number, "Whether its losses are numbers."); }
};

class LearningRateTask final : public TaskFamily {
 public:
  explicit LearningRateTask(const LearningRateOptions& options)
      : TaskFamily({.params = Layout({{"x", {1}}})}), number_(options.number) {}

 private:
  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    params[0] = 0;
  }
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace&) const override {
    for (size_t i = 0; i < evaluation.losses.size(); ++i) {
      const float x = evaluation.params[i];
      const float loss = x == 0 ? 1 : std::abs(std::round(std::log(x)) - 8);
      evaluation.losses[i] = number_ ? loss : std::numeric_limits<float>::quiet_NaN();
    }
    std::fill(evaluation.gradients.begin(), evaluation.gradients.end(), -1.0F);
  }

  bool number_;
};

// theta counts the updates: its gradient is -1, its learning rate 1. Its held-out loss falls until
// update 8 and rises after it.
MetaTrainConfig Counting(int64_t meta_steps, int64_t eval_every) {
  const auto add = [] {
    EstimatorRegistry().Add<ExplodingOptions>(
        "Counting", "Its gradient is -1.",
        [](const ExplodingOptions&, const std::shared_ptr<const LearnedOptimizer>&,
           const TaskResources&) {
          return Configured([](const WorkerWeights&, Key, int64_t) {
            return GradientEstimate{.gradient = Eigen::VectorXf::Constant(1, -1),
                                    .mean_loss = 0,
                                    .counts = {},
                                    .metrics = {}};
          });
        });
    TaskRegistry().Add<LearningRateOptions>(
        "LearningRate", "Its loss tells the learning rate.",
        [](const LearningRateOptions& options, const TaskResources&) {
          return std::make_shared<LearningRateTask>(options);
        });
    return true;
  };
  static const bool added = add();
  CHECK(added);
  auto config = ReadOptions<MetaTrainConfig>(Config::Parse(
      R"({"learned_optimizer": {"type": "LearnableSGD", "learning_rate": 1},
          "theta_opt": {"type": "SGD", "learning_rate": 1},
          "estimators": [{"type": "Counting"}], "checkpoint_seconds": 0, "checkpoint_steps": 5,
          "eval_tasks": [{"type": "LearningRate"}], "eval_steps": 1, "eval_seeds": 2})",
      "test"));
  config.meta_steps = meta_steps;
  config.eval_every = eval_every;
  return config;
}

TEST_CASE("The theta of the lowest held-out loss is kept, and every evaluation is in the metrics") {
  const TempDirectory directory;
  Train(Counting(12, 4), directory.path());
  const ThetaFile best = ReadThetaFile(directory.path() + "/theta_best.safetensors");
  CHECK(best.meta_steps == 8);
  CHECK(best.theta[0] == 8);
  CHECK(ReadTextFile(directory.path() + "/best.json") ==
        R"({
  "updates": 8,
  "eval_loss": 0.0,
  "eval_tasks": [
    {
      "type": "LearningRate",
      "number": true
    }
  ],
  "eval_steps": 1,
  "eval_seeds": 2
}
)");
  CHECK(ReadThetaFile(directory.path() + "/theta.safetensors").theta[0] == 12);

  std::istringstream lines(ReadTextFile(directory.path() + "/metrics.jsonl"));
  std::string line;
  int64_t step = 0;
  for (; std::getline(lines, line); ++step) {
    CAPTURE(line);
    CHECK((line.find("\"eval_loss\"") != std::string::npos) == (step % 4 == 0));
    CHECK((line.find("\"meta_loss\"") != std::string::npos) == (step < 12));
  }
  CHECK(step == 13);
}

TEST_CASE("A run in two parts evaluates as one in one go does") {
  const auto run = [](const MetaTrainConfig& config, const std::string& path, bool resume) {
    RunMetaTraining(config, {.out_dir = path, .resume = resume});
  };
  for (const int64_t first : {5, 8, 9}) {
    CAPTURE(first);
    const TempDirectory both;
    const TempDirectory one;
    run(Counting(first, 4), both.path(), false);
    run(Counting(13, 4), both.path(), true);
    run(Counting(13, 4), one.path(), false);
    for (const char* file : {"/best.json", "/metrics.jsonl"}) {
      CHECK(ReadTextFile(both.path() + file) == ReadTextFile(one.path() + file));
    }
    CHECK(ReadThetaFile(both.path() + "/theta_best.safetensors").theta[0] == 8);
  }
}

TEST_CASE("When the held-out evaluation changes, the best theta is chosen anew") {
  const TempDirectory directory;
  Train(Counting(10, 4), directory.path());
  const auto best = [&] {
    return ReadThetaFile(directory.path() + "/theta_best.safetensors").theta[0];
  };
  CHECK(best() == 8);
  // As it was, 8 stays the best; so it does where an earlier version had not all keys of the task.
  Resume(Counting(13, 4), directory.path());
  CHECK(best() == 8);
  ReplaceInFile(directory / "best.json", "\"LearningRate\",\n      \"number\": true",
                "\"LearningRate\"");
  Resume(Counting(17, 4), directory.path());
  CHECK(best() == 8);
  // With a key that this version does not know it is another task.
  ReplaceInFile(directory / "best.json", "\"LearningRate\"",
                "\"LearningRate\", \"shape\": \"round\"");
  Resume(Counting(21, 4), directory.path());
  CHECK(best() == 20);
  MetaTrainConfig config = Counting(25, 4);
  config.eval_seeds = 3;
  Resume(config, directory.path());
  CHECK(best() == 24);
}

TEST_CASE("A best theta that its record does not tell of is removed, and chosen anew") {
  const TempDirectory directory;
  const std::string record = directory.path() + "/best.json";
  const std::string theta = directory.path() + "/theta_best.safetensors";
  Train(Counting(10, 4), directory.path());
  // Each leaves the two files as a process does that dies between their writing, or as damage does.
  const std::vector<std::function<void()>> faults = {
      [&] {
        fs::copy_file(directory.path() + "/theta.safetensors", theta,
                      fs::copy_options::overwrite_existing);
      },
      [&] { fs::remove(theta); }, [&] { fs::remove(record); }, [&] { WriteTextFile(record, "{"); }};
  int64_t steps = 10;
  for (const auto& fault : faults) {
    fault();
    steps += 4;
    // Each loss is higher than those before, so that none would be the best of all.
    Resume(Counting(steps, 4), directory.path());
    CHECK(ReadThetaFile(theta).meta_steps == steps - 2);
    CHECK(ReadTextFile(record).find(fmt::format("\"updates\": {},", steps - 2)) !=
          std::string::npos);
  }
  const auto replace = [&] {
    RunMetaTraining(Counting(10, 4), {.out_dir = directory.path(), .overwrite = true});
  };
  for (const auto& fault : faults) {
    replace();
    fault();
    RemoveBestThetaAfter(directory.path(), 9);
    CHECK_FALSE(fs::exists(record));
    CHECK_FALSE(fs::exists(theta));
  }
  replace();
  RemoveBestThetaAfter(directory.path(), 8);
  CHECK(fs::exists(record));
  CHECK(ReadThetaFile(theta).meta_steps == 8);
}

TEST_CASE("A best theta of updates after the newest checkpoint is given up with them") {
  for (const Config& mode :
       {WriteOptions("Sync", SyncOptions{}), WriteOptions("Async", AsyncOptions{})}) {
    CAPTURE(mode.Type());
    const TempDirectory directory;
    const std::string record = directory / "best.json";
    const std::string theta = directory / "theta_best.safetensors";
    const auto counting = [&](int64_t meta_steps) {
      MetaTrainConfig config = Counting(meta_steps, 4);
      config.mode = mode;
      return config;
    };
    // As a run leaves it that dies before its last checkpoint. No loss that comes again is as low.
    const auto die = [&](int64_t last) {
      fs::remove_all(CheckpointStore(directory / "checkpoints", {}).Path(last));
      ReplaceInFile(record, "\"eval_loss\": 0.0", "\"eval_loss\": -1.0");
    };
    Train(counting(10), directory.path());
    die(10);
    REQUIRE(CheckpointStore(directory / "checkpoints", {}).Steps() == std::vector<int64_t>{0, 5});
    Resume(counting(7), directory.path());
    CHECK_FALSE(fs::exists(record));
    CHECK_FALSE(fs::exists(theta));
    Resume(counting(9), directory.path());
    CHECK(Has(ReadTextFile(record), "\"updates\": 8,\n  \"eval_loss\": 0.0,"));
    CHECK(ReadThetaFile(theta).theta[0] == 8);
    // One of the checkpoint's updates or of earlier ones stays.
    Resume(counting(11), directory.path());
    die(11);
    Resume(counting(13), directory.path());
    CHECK(Has(ReadTextFile(record), "\"updates\": 8,\n  \"eval_loss\": -1.0,"));
    CHECK(ReadThetaFile(theta).theta[0] == 8);
  }
}

TEST_CASE("An evaluation that is never a number leaves no best theta") {
  const TempDirectory directory;
  MetaTrainConfig config = Counting(4, 2);
  config.eval_tasks[0] = config.eval_tasks[0].With("number", "false");
  Train(config, directory.path());
  CHECK(ReadTextFile(directory.path() + "/metrics.jsonl").find("\"eval_loss\":") !=
        std::string::npos);
  CHECK_FALSE(fs::exists(directory.path() + "/theta_best.safetensors"));
}

TEST_CASE("Held-out evaluation needs tasks where the estimators have none") {
  MetaTrainConfig config = Counting(4, 2);
  config.eval_tasks.clear();
  CHECK(ErrorOf(config, {}) ==
        "eval_tasks is empty and the estimator Counting has no task to evaluate theta on; name "
        "some");
}

TEST_CASE("Held-out evaluation falls back on the estimators' tasks, and changes no bit of theta") {
  MetaTrainConfig config = SmallExperiment(2, 4);
  const MetaTrainResult without = Train(config);
  config.eval_every = 2;
  config.eval_steps = 3;
  config.eval_seeds = 1;
  const TempDirectory directory;
  CHECK(Train(config, directory.path()).learner.theta == without.learner.theta);
  const std::string metrics = ReadTextFile(directory.path() + "/metrics.jsonl");
  for (const char* name :
       {"eval_loss", "eval_ratio/0_FixedDimQuadraticFamily", "eval_valid_loss/1_ImageMLP",
        "eval_train_loss/2_FixedDimQuadraticFamily"}) {
    CHECK_MESSAGE(metrics.find(name) != std::string::npos, name);
  }
  const std::string events =
      ReadTextFile(directory.path() + "/" + EventFiles(directory.path()).back());
  CHECK(events.find("1_ImageMLP/batch") != std::string::npos);
  CHECK(events.find("\x89PNG") != std::string::npos);
}

TEST_CASE(
    "The pictures of an evaluation are in TensorBoard once, also of a run that was prolonged") {
  const auto run = [](int64_t meta_steps) {
    MetaTrainConfig config = SmallExperiment(1, meta_steps);
    config.estimators = {config.estimators[1]};
    config.eval_every = 2;
    config.eval_steps = 1;
    config.eval_seeds = 1;
    return config;
  };
  const auto pictures = [](const TempDirectory& directory) {
    int count = 0;
    for (const std::string& file : EventFiles(directory.path())) {
      count += Count(ReadTextFile(directory / file), "0_ImageMLP/batch");
    }
    return count;
  };
  const TempDirectory directory;
  Train(run(2), directory.path());
  const int of_two = pictures(directory);  // after no update and after two
  REQUIRE(of_two > 0);
  Resume(run(4), directory.path());
  CHECK(2 * pictures(directory) == 3 * of_two);
}

TEST_CASE("A run warns of weights of estimators that have no effect") {
  MetaTrainConfig config = SmallExperiment(3, 1);
  const auto warns = [&] {
    const LoggedLines lines;
    const Experiment experiment(config);
    return Has(lines.text(),
               "estimators_per_worker is 1, so the estimators' weights have no effect");
  };
  CHECK_FALSE(warns());
  config.estimators_per_worker = 2;
  CHECK_FALSE(warns());
  config.estimators_per_worker = 1;
  CHECK(warns());
  config.weighting = Weighting::kEqualNorm;
  CHECK_FALSE(warns());
  config.weighting = Weighting::kFixed;
  config.estimators[1] = config.estimators[1].With("weight", "1");
  CHECK_FALSE(warns());
}

TEST_CASE("A run that goes on when its theta_opt has no steps left warns of it") {
  const TempDirectory directory;
  const auto warns = [&](MetaTrainConfig config, bool resume) {
    const LoggedLines lines;
    RunMetaTraining(config, {.out_dir = directory.path(), .resume = resume});
    return Has(lines.text(),
               "theta_opt's schedule has ended after 4 updates, with a learning rate of 0: further "
               "ones change nothing");
  };
  MetaTrainConfig config = Counting(4, 0);
  // Its first learning rate is 0, too.
  config.theta_opt = Config::Parse(
      R"({"type": "SGD", "schedule": {"type": "WarmupCosine", "warmup_steps": 1}})", "test");
  CHECK_FALSE(warns(config, false));
  config = ReadOptions<MetaTrainConfig>(Config::Load(directory / "config.json"));
  CHECK_FALSE(warns(config, true));
  config.meta_steps = 5;
  CHECK(warns(config, true));
  config.meta_steps = 7;
  CHECK(warns(config, true));
}

TEST_CASE("A theta file says for how long it was trained, and the best one what it was chosen on") {
  MetaTrainConfig config = SmallExperiment(1, 2);
  config.eval_every = 2;
  config.eval_steps = 3;
  config.eval_seeds = 1;
  const TempDirectory directory;
  Train(config, directory.path());
  const ThetaFile last = ReadThetaFile(directory.path() + "/theta.safetensors");
  CHECK(last.trained_horizon == 40);  // the longest of its schedules
  CHECK(last.chosen_on.empty());
  const ThetaFile best = ReadThetaFile(directory.path() + "/theta_best.safetensors");
  CHECK(best.trained_horizon == 40);
  CHECK(best.chosen_on == "outer_valid");

  // What no worker runs is not trained on.
  config.estimators_per_worker = 1;
  config.estimator_placement = EstimatorPlacement::kRandom;
  CHECK(Experiment(config).RangeOfTraining(1).longest_training ==
        Experiment(config).estimators[EstimatorsOfWorker(config, 0)[0]]->schedule->Longest(1));
  CHECK_FALSE(Experiment(config).RangeOfTraining(0).known());
  // Its estimator has neither a schedule nor a task.
  CHECK_FALSE(Experiment(Counting(4, 2)).RangeOfTraining(4).known());
}

TEST_CASE("A theta file says what the trainings were like that it was trained on") {
  const auto mlp = [](int hidden, int batch) {
    return fmt::format(
        R"({{"type": "ImageMLP", "image_size": 8, "hidden": [{}], "batch_size": {},
             "data": "glyphs"}})",
        hidden, batch);
  };
  const auto estimator = [](const std::string& task, const std::string& lengths) {
    return Config::Parse(
        fmt::format(R"({{"type": "TruncatedES", "num_tasks": 2, "trunc_length": 4, "std": 0.02,
                         "task": {}, "lengths": {}}})",
                    task, lengths),
        "test");
  };
  const std::string constant = R"({"type": "ConstantTruncationSchedule", "total_length": 20})";
  const std::string drawn =
      R"({"type": "LogUniformLengthSchedule", "min_length": 8, "max_length": 40})";
  MetaTrainConfig config = SmallExperiment(1, 2);
  config.estimators = {
      estimator(mlp(4, 8), drawn),
      estimator(fmt::format(R"({{"type": "ReparamWeights", "task": {}}})", mlp(16, 32)), constant)};
  // 8x8 images of 10 classes: 64 h + h + 10 h + 10 numbers with h hidden units, in tensors of
  // 64 h, h, 10 h and 10.
  const TrainedRange wanted = {.shortest_training = 8,
                               .longest_training = 40,
                               .smallest_batch = 8,
                               .largest_batch = 32,
                               .fewest_params = 310,
                               .most_params = 1210,
                               .largest_tensor = 1024};
  const TempDirectory directory;
  Train(config, directory.path());
  CHECK(ReadThetaFile(directory.path() + "/theta.safetensors").trained_range == wanted);

  // Tasks without data have no batches, and episodes without an end no length.
  config.estimators.push_back(estimator(R"({"type": "FixedDimQuadraticFamily", "dim": 2000})",
                                        R"({"type": "NeverEndingTruncationSchedule"})"));
  TrainedRange more = wanted;
  more.longest_training = 0;
  more.most_params = 2000;
  more.largest_tensor = 2000;
  CHECK(Experiment(config).RangeOfTraining(2) == more);

  // A mix has the batches of its parts, and a wrapper over it, too.
  config.estimators = {estimator(fmt::format(R"({{"type": "DelayedGradients", "task":
                       {{"type": "SampledFamily", "tasks": [{}, {}]}}}})",
                                             mlp(4, 8), mlp(4, 64)),
                                 constant)};
  CHECK(Experiment(config).RangeOfTraining(1) == TrainedRange{.shortest_training = 20,
                                                              .longest_training = 20,
                                                              .smallest_batch = 8,
                                                              .largest_batch = 64,
                                                              .fewest_params = 310,
                                                              .most_params = 310,
                                                              .largest_tensor = 256});
}

TEST_CASE("theta after 20 updates has the same bits on 1, 2 and 8 threads") {
  for (const MetaTrainConfig& config :
       {SmallExperiment(1), SmallExperiment(4), LastingExperiment(4)}) {
    CAPTURE(config.workers);
    const MetaTrainResult one = Train(config);
    CHECK(one.updates == 20);
    CHECK(one.learner.outer_step == 20);
    CHECK(one.learner.theta.allFinite());
    for (const int threads : {2, 8}) {
      const MetaTrainResult many = Train(config, "", threads);
      CHECK(many.learner.theta == one.learner.theta);
      CHECK(many.learner.theta_opt == one.learner.theta_opt);
      CHECK(many.totals == one.totals);
    }
  }
  // The workers and the seed are part of the experiment.
  MetaTrainConfig other = SmallExperiment(1);
  CHECK(Train(other).learner.theta != Train(SmallExperiment(4)).learner.theta);
  other.seed = 12;
  CHECK(Train(other).learner.theta != Train(SmallExperiment(1)).learner.theta);
}

TEST_CASE("Ten updates, a resume and ten more leave what twenty in one go leave") {
  for (const MetaTrainConfig& config :
       {SmallExperiment(1), SmallExperiment(4), LastingExperiment(4)}) {
    CAPTURE(config.workers);
    const TempDirectory whole;
    const TempDirectory parts;
    const MetaTrainResult at_once = Train(config, whole.path());
    MetaTrainConfig half = config;
    half.meta_steps = 10;
    Train(half, parts.path());
    const MetaTrainResult resumed = Resume(config, parts.path(), 2);
    CHECK(resumed.updates == 10);
    CHECK(resumed.learner.theta == at_once.learner.theta);
    CHECK(resumed.totals == at_once.totals);
    CHECK(MetricsLines(parts.path()) == MetricsLines(whole.path()));
    CHECK(ReadFile(parts / "theta.safetensors") == ReadFile(whole / "theta.safetensors"));
    const auto last = [](const TempDirectory& directory) {
      return CheckpointStore(directory / "checkpoints", {}).ReadNewest();
    };
    CHECK(last(parts)->workers == last(whole)->workers);
    CHECK(last(parts)->learner.theta_opt == last(whole)->learner.theta_opt);
  }
}

TEST_CASE("A run that is stopped says so, and goes on to the same end") {
  const TempDirectory whole;
  const TempDirectory parts;
  const MetaTrainConfig config = SmallExperiment(2);
  Train(config, whole.path());
  std::atomic<bool> stop = false;
  std::vector<int64_t> seen;
  const MetaTrainResult stopped = RunMetaTraining(
      config,
      {.out_dir = parts.path(), .stop = &stop, .on_step = [&](const MetaTrainProgress& progress) {
         seen.push_back(progress.updates);
         CHECK(progress.meta_steps == 20);
         CHECK(progress.first_updates == 0);
         CHECK(progress.inner_steps > 0);
         CHECK(progress.estimator_names->at(1) == "1_ImageMLP");
         stop = progress.updates == 5;
       }});
  CHECK(seen == std::vector<int64_t>{1, 2, 3, 4, 5});
  CHECK(stopped.interrupted);
  CHECK(stopped.theta_path.empty());
  CHECK_FALSE(fs::exists(parts / "theta.safetensors"));
  const RunManifest manifest = RunDirectory(parts.path()).ReadManifest();
  CHECK(manifest.status == "interrupted");
  CHECK(manifest.updates == 5);
  const MetaTrainResult resumed = Resume(config, parts.path());
  CHECK_FALSE(resumed.interrupted);
  CHECK(resumed.theta_path == parts / "theta.safetensors");
  CHECK(FinalTheta(parts.path()) == FinalTheta(whole.path()));
  CHECK(MetricsLines(parts.path()) == MetricsLines(whole.path()));
  CHECK(RunDirectory(parts.path()).ReadManifest().status == "finished");
}

TEST_CASE("A finished run leaves its config, manifest, metrics, checkpoints and theta") {
  const TempDirectory directory;
  const std::string out = directory / "runs/first";
  const MetaTrainConfig config = SmallExperiment(1);
  const MetaTrainResult result =
      RunMetaTraining(config, {.out_dir = out, .threads = 2, .version = "1.2.3"});
  // The resolved config describes the same run.
  const Config written = Config::Load(out + "/config.json");
  CHECK(written.Dump().find("\"beta2\": 0.999") != std::string::npos);
  CHECK(Train(ReadOptions<MetaTrainConfig>(written)).learner.theta == result.learner.theta);
  const RunManifest manifest = RunDirectory(out).ReadManifest();
  CHECK(manifest.status == "finished");
  CHECK(manifest.version == "1.2.3");
  CHECK(manifest.isa == CurrentIsa());
  CHECK(manifest.seed == 11);
  CHECK(manifest.updates == 20);
  CHECK(manifest.threads == 2);
  CHECK(CheckpointStore(out + "/checkpoints", {}).Steps() == std::vector<int64_t>{14, 20});
  const std::string lines = MetricsLines(out);
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 20);
  CHECK(lines.find("\"meta_loss/0_FixedDimQuadraticFamily\"") != std::string::npos);
  CHECK(lines.find("\"non_finite/1_ImageMLP\"") != std::string::npos);
  const ThetaFile theta = ReadThetaFile(result.theta_path);
  CHECK(theta.theta == result.learner.theta);
  CHECK(theta.meta_steps == 20);
  CHECK(theta.seed == 11);
  CHECK(theta.version == "1.2.3");
  CHECK(theta.config.Dump() == written.Dump());
  // The counts of an update: 2 windows x 3 tasks x 2 replicas x 10 steps.
  CHECK(result.totals[0].inner_steps == 20 * 120);
  CHECK(result.last.estimators[0].counts.inner_steps == 120);
}

TEST_CASE("The speed of a run is written apart from its metrics and goes on after a resume") {
  const TempDirectory directory;
  Train(SmallExperiment(1, 6), directory.path());
  const auto lines = [&] {
    std::vector<std::string> all;
    std::istringstream text(ReadTextFile(directory / "throughput.jsonl"));
    for (std::string line; std::getline(text, line);) {
      all.push_back(line);
    }
    return all;
  };
  const auto number = [](const std::string& line, const std::string& name) {
    const size_t at = line.find("\"" + name + "\":");
    REQUIRE(at != std::string::npos);
    return std::stod(line.substr(at + name.size() + 3));
  };
  const std::string first = lines().back();
  CHECK(number(first, "step") == 6);
  CHECK(number(first, "updates_per_second") > 0);
  CHECK(number(first, "inner_steps_per_second") > number(first, "updates_per_second"));
  // What came after the checkpoint is cut off.
  std::ofstream(directory / "throughput.jsonl", std::ios::app) << "{\"step\":7,\"seconds\":1e9}\n";
  Resume(SmallExperiment(1, 9), directory.path());
  CHECK(lines()[lines().size() - 2] == first);
  const std::string last = lines().back();
  CHECK(number(last, "step") == 9);
  CHECK(number(last, "seconds") > number(first, "seconds"));
  CHECK(number(last, "seconds") < 1e6);
}

TEST_CASE("Metrics are written for every so many-th update, across a resume too") {
  const TempDirectory whole;
  const TempDirectory parts;
  MetaTrainConfig config = SmallExperiment(1);
  config.metrics_steps = 3;
  Train(config, whole.path());
  const std::string lines = MetricsLines(whole.path());
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 7);
  config.meta_steps = 10;
  Train(config, parts.path());
  config.meta_steps = 20;
  Resume(config, parts.path());
  CHECK(MetricsLines(parts.path()) == lines);
}

TEST_CASE("Metrics name the steps of each worker up to as many workers as the config says") {
  MetaTrainConfig config = SmallExperiment(2, 2);
  const auto lines = [&](int64_t worker_metrics) {
    const TempDirectory directory;
    config.worker_metrics = worker_metrics;
    Train(config, directory.path());
    return MetricsLines(directory.path());
  };
  const std::string all = lines(1);
  CHECK(all.find("used_steps/0_") != std::string::npos);
  CHECK(all.find("used_steps/worker_") == std::string::npos);
  CHECK(lines(2).find("used_steps/worker_1\"") != std::string::npos);
  CHECK(lines(0) == all);
}

TEST_CASE("With a thousand workers the metrics of an update are less than 2 kB by default") {
  const TempDirectory directory;
  Ledger ledger(1000, 4);
  ledger.RollBack(999, 0, 1);
  for (const auto& [outcome, name] : kOutcomes) {
    AggregatedGradient gradient;
    gradient.estimators.assign(4, {.counts = {.inner_steps = 1000000}});
    ledger.Account(outcome, {.worker = 999, .first = 0, .windows = 1}, gradient);
  }
  Metrics metrics;
  AddLedgerMetrics(ledger, {"0_A", "1_B", "2_C", "3_D"}, MetaTrainConfig().worker_metrics,
                   &metrics);
  MetricsLog log(directory.path());
  log.Write(0, metrics);
  log.Flush();
  CHECK(metrics.contains("lost_steps/3_D"));
  CHECK(fs::file_size(directory / "metrics.jsonl") < 2000);
}

TEST_CASE("A directory that holds a run needs resume or overwrite") {
  const TempDirectory directory;
  const std::string out = directory / "run";
  const MetaTrainConfig config = SmallExperiment(1, 2);
  CHECK(ErrorOf(config, {.out_dir = out, .resume = true}) ==
        "cannot resume: " + out + " holds no run");
  Train(config, out);
  WriteTextFile(out + "/notes.txt", "mine");
  CHECK(ErrorOf(config, {.out_dir = out}) ==
        out +
            " holds a run already: resume it (--resume), replace it (--overwrite), or choose "
            "another directory");
  MetaTrainConfig other = SmallExperiment(1, 3);
  other.seed = 99;
  RunMetaTraining(other, {.out_dir = out, .overwrite = true});
  CHECK(ReadTextFile(out + "/notes.txt") == "mine");
  CHECK(RunDirectory(out).ReadManifest().seed == 99);
  const std::string lines = MetricsLines(out);
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 3);
  CHECK(CheckpointStore(out + "/checkpoints", {}).Steps() == std::vector<int64_t>{0, 3});
  int64_t event_files = 0;
  for (const auto& entry : fs::directory_iterator(out)) {
    event_files += entry.path().filename().string().starts_with("events.out.tfevents.") ? 1 : 0;
  }
  CHECK(event_files == 1);
  CHECK(ErrorOf(other, {.out_dir = out, .resume = true, .overwrite = true}) ==
        "resume and overwrite exclude each other");
  CHECK(ErrorOf(other, {.resume = true}) ==
        "resume and overwrite need an output directory (--out)");
}

TEST_CASE("A directory that another run is using is an error") {
  const TempDirectory directory;
  const MetaTrainConfig config = SmallExperiment(1, 2);
  Train(config, directory.path());
  const RunLock other(directory.path());
  const std::string error = fmt::format("{} is in use: process {} on host {} runs in it",
                                        directory.path(), ::getpid(), HostName());
  CHECK(ErrorOf(config, {.out_dir = directory.path(), .resume = true}) == error);
  CHECK(ErrorOf(config, {.out_dir = directory.path(), .overwrite = true}) == error);
  CHECK(FinalTheta(directory.path()).size() == 6);
}

TEST_CASE("A run that began and ended while a start was held up is not overwritten") {
  const TempDirectory directory;
  const MetaTrainConfig config = SmallExperiment(1, 2);
  const Experiment experiment(config);
  Wakeup wakeup;
  Background files(1, &wakeup);
  RunWriter late(experiment, {.out_dir = directory.path()}, &files);
  Train(config, directory.path());
  const std::string metrics = MetricsLines(directory.path());
  CHECK(lopt::ErrorOf([&] { late.Create(); }) ==
        directory.path() +
            " holds a run already: resume it (--resume), replace it (--overwrite), or choose "
            "another directory");
  CHECK(MetricsLines(directory.path()) == metrics);
}

TEST_CASE("A run whose lock another process took over writes no more checkpoints") {
  const TempDirectory directory;
  const std::string error = ErrorOf(
      SmallExperiment(1, 20), {.out_dir = directory.path(), .on_event = [&](std::string_view what) {
                                 if (what == "step:3") fs::remove(directory / "run.lock");
                               }});
  CHECK(error.starts_with(directory.path() + ": another process has taken this directory over"));
  CHECK(RunDirectory(directory.path()).ReadManifest().status == "running");
  CHECK(CheckpointStore(directory / "checkpoints", {}).Steps() == std::vector<int64_t>{0});
}

TEST_CASE("Checkpoints can follow the clock") {
  const TempDirectory directory;
  MetaTrainConfig config = SmallExperiment(1, 3);
  config.checkpoint_steps = 0;
  config.checkpoint_seconds = 1e-9;
  config.keep_last = 9;
  Train(config, directory.path());
  const CheckpointStore store(directory / "checkpoints", {});
  CHECK(store.Steps() == std::vector<int64_t>{0, 1, 2, 3});
}

// Its clock goes on by 100 s while a checkpoint is written.
class SlowDisk final : public LikeSystemEnvironment {
 public:
  std::chrono::steady_clock::time_point Now() override { return System().Now() + waited_.load(); }
  void Wait() { waited_ = waited_.load() + std::chrono::seconds(100); }

 private:
  std::atomic<std::chrono::steady_clock::duration> waited_ = {};
};

TEST_CASE("The time between checkpoints is that from the end of one to the next") {
  const TempDirectory directory;
  MetaTrainConfig config = SmallExperiment(1, 3);
  config.checkpoint_steps = 0;
  config.checkpoint_seconds = 50;
  config.keep_last = 9;
  SlowDisk disk;
  const InEnvironment around(&disk);
  RunMetaTraining(config, {.out_dir = directory.path(), .on_event = [&](std::string_view event) {
                             if (event.ends_with(":rename")) disk.Wait();
                           }});
  const CheckpointStore store(directory / "checkpoints", {});
  CHECK(store.Steps() == std::vector<int64_t>{0, 3});
}

TEST_CASE("A run writes the checkpoints that keep_every keeps") {
  const TempDirectory directory;
  MetaTrainConfig config = SmallExperiment(1, 7);
  config.checkpoint_steps = 0;
  config.checkpoint_seconds = 0;
  config.keep_last = 1;
  config.keep_every = 2;
  Train(config, directory.path());
  const CheckpointStore store(directory / "checkpoints", {});
  CHECK(store.Steps() == std::vector<int64_t>{0, 2, 4, 6, 7});
}

TEST_CASE("A finished run that is resumed to the same total does nothing more") {
  const TempDirectory directory;
  const MetaTrainConfig config = SmallExperiment(1, 3);
  const MetaTrainResult first = Train(config, directory.path());
  const MetaTrainResult again = Resume(config, directory.path());
  CHECK(again.updates == 0);
  CHECK(again.last.outer_step == -1);
  CHECK(again.learner.theta == first.learner.theta);
  CHECK(RunDirectory(directory.path()).ReadManifest().status == "finished");
}

TEST_CASE("Resuming with a changed config is an error that says which keys differ") {
  const TempDirectory directory;
  MetaTrainConfig config = SmallExperiment(1, 3);
  Train(config, directory.path());
  const std::string start =
      "cannot resume from " + directory.path() + "/checkpoints/step-00000003: ";
  const std::string end =
      ". On resume only these keys may change: name, meta_steps, "
      "worker_timeout_seconds, progress_timeout_seconds, gather_checkpoints, data_dir, isa, "
      "device, checkpoint_seconds, checkpoint_steps, keep_last, keep_every, metrics_steps, "
      "worker_metrics, "
      "eval_every, "
      "eval_tasks, "
      "eval_steps, eval_seeds";
  const MetaTrainerOptions resume = {.out_dir = directory.path(), .resume = true};
  MetaTrainConfig changed = config;
  changed.seed = 12;
  changed.estimators[0] = changed.estimators[0].With("std", "0.02");
  CHECK(ErrorOf(changed, resume) == start +
                                        "the config has changed: estimators[0].std: 0.01 in the "
                                        "checkpoint, 0.02 now; seed: 11 in the checkpoint, 12 now" +
                                        end);
  changed = config;
  changed.workers = 2;
  CHECK(ErrorOf(changed, resume) ==
        start + "the config has changed: workers: 1 in the checkpoint, 2 now" + end);
  changed = config;
  changed.meta_steps = 2;
  CHECK(ErrorOf(changed, resume) == start + "it has 3 updates, more than meta_steps = 2");
  // A default that is written out is no change, nor are the free keys.
  changed = ReadOptions<MetaTrainConfig>(Config::Load(directory / "config.json"));
  changed.name = "another";
  changed.meta_steps = 4;
  changed.checkpoint_steps = 1;
  changed.keep_last = 9;
  CHECK(Resume(changed, directory.path()).updates == 1);
}

TEST_CASE("Another instruction set at resume is an error unless it is allowed") {
  const TempDirectory directory;
  const std::vector<std::string> isas = SupportedIsas();
  const std::string before = CurrentIsa();
  MetaTrainConfig config = SmallExperiment(1, 3);
  config.isa = isas.back();
  Train(config, directory.path());
  if (isas.size() > 1) {
    config.isa = isas.front();
    config.meta_steps = 4;
    CHECK(ErrorOf(config, {.out_dir = directory.path(), .resume = true}) ==
          "cannot resume from " + directory.path() +
              "/checkpoints/step-00000003: it was computed on instruction set " + isas.back() +
              ", this process uses " + isas.front() +
              ", so the result would have other bits; pin it (isa, --isa), or allow the change "
              "(--allow-isa-change)");
    CHECK(RunMetaTraining(config,
                          {.out_dir = directory.path(), .resume = true, .allow_isa_change = true})
              .updates == 1);
  }
  config.isa = "abacus";
  CHECK(ErrorOf(config, {}).find("abacus") != std::string::npos);
  PinIsa(before);
}

TEST_CASE("A rule that sees all tensors has the same bits on any ranks and after a resume") {
  const auto config = [](int64_t meta_steps) {
    MetaTrainConfig config = SmallExperiment(3, meta_steps);
    config.learned_optimizer = Config::Parse(
        R"({"type": "RNNMLPLOpt", "hidden_size": 4, "lstm_hidden_size": 4, "step_mult": 0.01})",
        "test");
    return config;
  };
  const TempDirectory whole;
  const TempDirectory parts;
  const MetaTrainResult one = Train(config(6), whole.path());
  CHECK(one.learner.theta.allFinite());
  CHECK(one.learner.theta != Train(config(0)).learner.theta);
  CHECK(RunLocalJob(config(3), 2, {.out_dir = parts.path()}).errors == std::vector<std::string>(2));
  CHECK(RunLocalJob(config(6), 3, {.out_dir = parts.path(), .threads = 2, .resume = true}).errors ==
        std::vector<std::string>(3));
  CHECK(FinalTheta(parts.path()) == FinalTheta(whole.path()));
  CHECK(MetricsLines(parts.path()) == MetricsLines(whole.path()));
  CHECK(ReadThetaFile(whole / "theta.safetensors").theta == one.learner.theta);
}

TEST_CASE("A gradient that is not finite skips an update or ends the run, as the config says") {
  const TempDirectory directory;
  const MetaTrainResult skipped = Train(Exploding("skip"), directory / "skip");
  CHECK(skipped.learner.outer_step == 6);
  CHECK(skipped.learner.skipped_updates == 1);
  CHECK(skipped.learner.theta[0] == -5);
  CHECK(MetricsLines(directory / "skip").find("\"nan\"") != std::string::npos);
  const std::string error = ErrorOf(Exploding("abort"), {.out_dir = directory / "abort"});
  CHECK(error ==
        "the gradient of outer step 3 is not finite (worker 0) and non_finite_gradient is "
        "\"abort\"; \"skip\" counts such updates and goes on");
  const RunManifest manifest = RunDirectory(directory / "abort").ReadManifest();
  CHECK(manifest.status == "failed");
  CHECK(manifest.error == error);
  CHECK(manifest.updates == 3);
}

TEST_CASE("A run that makes weights that are not finite ends with an error and writes no theta") {
  const TempDirectory directory;
  MetaTrainConfig config = Exploding("skip");
  config.theta_opt = Config::Parse(R"({"type": "SGD", "learning_rate": 1e308})", "test");
  const std::string run = directory / "run";
  const std::string error = ErrorOf(config, {.out_dir = run});
  CHECK(
      error.starts_with("the update of outer step 0 made weights that are not finite of finite "
                        "ones and a finite gradient (learning_rate 1e+308, norm of the "
                        "gradient 1): theta/log_lr [1] has 1 number that is not finite"));
  CHECK(RunDirectory(run).ReadManifest().status == "failed");
  CHECK(RunDirectory(run).ReadManifest().error == error);
  CHECK_FALSE(fs::exists(run + "/theta.safetensors"));
}

TEST_CASE("An output directory that cannot be made is an error") {
  const TempDirectory directory;
  WriteTextFile(directory / "file", "");
  CHECK(ErrorOf(SmallExperiment(1, 1), {.out_dir = directory / "file/run"}) ==
        "cannot create the directory " + directory.path() + "/file/run: Not a directory");
  if (::geteuid() != 0) {  // root may write everywhere
    fs::permissions(directory.path(), fs::perms::owner_read | fs::perms::owner_exec);
    CHECK(ErrorOf(SmallExperiment(1, 1), {.out_dir = directory.path()}) ==
          "cannot write to the output directory " + directory.path() + ": Permission denied");
    fs::permissions(directory.path(), fs::perms::owner_all);
  }
}

TEST_CASE("A bad config leaves the directory alone") {
  const TempDirectory directory;
  MetaTrainConfig config = SmallExperiment(1, 1);
  config.estimators.clear();
  CHECK(ErrorOf(config, {.out_dir = directory / "run"}) ==
        "estimators: must name at least one estimator");
  config = SmallExperiment(1, 1);
  config.estimators[0] = config.estimators[0].With("std", "-1");
  CHECK(ErrorOf(config, {.out_dir = directory / "run"}).find("std") != std::string::npos);
  CHECK_FALSE(fs::exists(directory / "run"));
}

TEST_CASE("A disk that is full ends the run with an error and keeps the last good checkpoint") {
  const TempDirectory directory;
  const TempDirectory whole;
  const MetaTrainConfig config = SmallExperiment(1);
  Train(config, whole.path());
  rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const MetaTrainerOptions options = {
      .out_dir = directory.path(), .on_event = [&](std::string_view event) {
        if (event == "checkpoint:14:workers:0") {
          const rlimit limit = {.rlim_cur = 1000, .rlim_max = before.rlim_max};
          ::setrlimit(RLIMIT_FSIZE, &limit);
        }
      }};
  const std::string error = ErrorOf(config, options);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(error ==
        "cannot write " + directory.path() +
            "/checkpoints/tmp-step-00000014/workers-00000-00000.safetensors: File too large");
  CHECK(CheckpointStore(directory / "checkpoints", {}).Steps() == std::vector<int64_t>{0, 7});
  Resume(config, directory.path());
  CHECK(FinalTheta(directory.path()) == FinalTheta(whole.path()));
  CHECK(MetricsLines(directory.path()) == MetricsLines(whole.path()));
}

TEST_CASE("Meta-training raises a learning rate that is too low") {
  auto config = ReadOptions<MetaTrainConfig>(Config::Parse(R"({
    "learned_optimizer": {"type": "LearnableSGD", "learning_rate": 0.001},
    "theta_opt": {"type": "Adam", "learning_rate": 0.1},
    "estimators": [
      {"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily", "dim": 5},
       "num_tasks": 8, "trunc_length": 5, "std": 0.1,
       "lengths": {"type": "ConstantTruncationSchedule", "total_length": 10}}],
    "meta_steps": 60})",
                                                           "test"));
  double first = 0;
  const MetaTrainResult result =
      RunMetaTraining(config, {.on_step = [&](const MetaTrainProgress& progress) {
                        if (progress.updates == 1) {
                          first = progress.summary->mean_loss;
                        }
                      }});
  CHECK(result.learner.theta[0] > std::log(0.05));
  CHECK(result.last.mean_loss < 0.6 * first);
}

// SGD until a file is there, whose rules then step twice as far.
std::string fickle_since;

class Fickle : public LearnedOptimizer {
 public:
  explicit Fickle(const LearnableSGDOptions& options)
      : LearnedOptimizer(LearnableSGD(options).theta_layout()), sgd_(options) {}

 private:
  void DoInitTheta(Key key, std::span<float> theta) const override {
    theta[0] = sgd_.InitTheta(key)[0];
  }
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override {
    const float rate = theta[0] + (fs::exists(fickle_since) ? std::log(2.0F) : 0);
    return sgd_.Bind(params, {&rate, 1});
  }

  LearnableSGD sgd_;
};

MetaTrainConfig FickleExperiment() {
  static const bool added = [] {
    OptimizerRegistry().Add<LearnableSGDOptions>(
        "Fickle", "SGD until its theta is written.",
        [](const LearnableSGDOptions& options) { return std::make_shared<Fickle>(options); });
    return true;
  }();
  CHECK(added);
  return ReadOptions<MetaTrainConfig>(Config::Parse(
      R"({"learned_optimizer": {"type": "Fickle"},
          "theta_opt": {"type": "SGD", "learning_rate": 1e-30},
          "estimators": [{"type": "TruncatedES", "num_tasks": 1, "trunc_length": 2, "std": 0.1,
                          "task": {"type": "FixedDimQuadraticFamily", "dim": 2},
                          "lengths": {"type": "ConstantTruncationSchedule", "total_length": 4}}],
          "meta_steps": 1})",
      "test"));
}

TEST_CASE("A best theta whose golden steps come out otherwise here is kept") {
  const TempDirectory directory;
  MetaTrainConfig config = FickleExperiment();
  config.eval_every = 1;
  config.eval_steps = 1;
  config.eval_seeds = 1;
  fickle_since = directory / "theta.safetensors";
  const LoggedLines lines;
  Train(config, directory.path());
  const std::string best = directory / "theta_best.safetensors";
  CHECK_THROWS_AS(ReadThetaFile(best), Error);
  RemoveBestThetaAfter(directory.path(), 1);
  CHECK(fs::exists(best));
  CHECK(fs::exists(directory / "best.json"));
  CHECK(Has(lines.text(),
            best + ": the optimizer does not do what it did when the file was written"));
}

TEST_CASE("A theta whose check fails after writing is kept, and the run has finished") {
  const TempDirectory directory;
  const MetaTrainConfig config = FickleExperiment();
  fickle_since = directory / "run/theta.safetensors";
  MetaTrainResult result;
  std::string log;
  {
    const LoggedLines lines;
    result = Train(config, directory / "run");
    log = lines.text();
  }
  CHECK(result.theta_path == fickle_since);
  CHECK_FALSE(result.interrupted);
  for (const std::string& isa : SupportedIsas()) {
    CAPTURE(isa);
    CHECK(log.find("theta.safetensors: the optimizer does not do what it did when the file "
                   "was written: golden/result/") != std::string::npos);
    CHECK(log.find(" on " + isa + ", which is ") != std::string::npos);
  }
  CHECK_THROWS_AS(ReadThetaFile(fickle_since), Error);
  const std::string path = fickle_since;
  fickle_since = directory / "none";
  CHECK(ReadThetaFile(path).meta_steps == 1);
}

}  // namespace
}  // namespace lopt
