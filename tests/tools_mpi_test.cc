#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/job/message_loop.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/learner/run/status_file.h"
#include "lopt/tools/shell.h"
#include "tests/csv_digits.h"
#include "tests/learner_runs.h"
#include "tests/paths.h"
#include "tests/patience.h"
#include "tests/process.h"
#include "tests/temp_directory.h"
#include "tests/text_parts.h"

// These run the program under mpiexec, with more ranks than there are cores.

namespace lopt {
namespace {

using Words = std::vector<std::string>;
using OnOutput = std::function<void(pid_t, const std::string&)>;

const std::string kLopt = BuildPath("lopt");

void Append(Words* words, const Words& more) {
  words->insert(words->end(), more.begin(), more.end());
}

// mpiexec with these words. Open MPI starts more ranks than cores, and as root, only when told.
FinishedProcess Mpiexec(const Words& arguments, const OnOutput& on_output = {}) {
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe"}) {
    ::setenv(name, "1", 1);
  }
  ::setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 1);
  Words words = {LOPT_MPIEXEC};
  Append(&words, arguments);
  return RunProcess(words, on_output);
}

// `lopt meta-train` on so many ranks; 0: without mpiexec.
FinishedProcess Train(int ranks, const Words& arguments, const OnOutput& on_output = {}) {
  Words words = {kLopt, "meta-train"};
  Append(&words, arguments);
  if (ranks == 0) return RunProcess(words, on_output);
  words.insert(words.begin(), {"-n", std::to_string(ranks)});
  return Mpiexec(words, on_output);
}

// A config file in the directory, with the estimators of these indices only.
std::string WriteConfig(const TempDirectory& directory, MetaTrainConfig config,
                        const std::vector<size_t>& estimators = {0, 1, 2}) {
  std::vector<Config> kept;
  for (const size_t e : estimators) kept.push_back(config.estimators[e]);
  config.estimators = kept;
  WriteTextFile(directory / "config.json", WriteOptions("", config).Dump());
  return directory / "config.json";
}

std::vector<std::byte> Theta(const std::string& run) {
  return ReadFile(run + "/theta.safetensors");
}

// Whether there is such a process, not counting one that has ended and was not waited for.
bool Runs(pid_t process) {
  const std::string path = "/proc/" + std::to_string(process) + "/cmdline";
  return std::filesystem::exists(path) && !ReadTextFile(path).empty();
}

}  // namespace

TEST_CASE("The weights have the same bytes from one process and from 2, 3 and 5 ranks" *
          doctest::test_suite("nightly")) {
  // PES, full ES, three kinds of estimators, and the three others.
  struct Case {
    MetaTrainConfig experiment;
    std::vector<size_t> estimators;
  };
  const std::vector<size_t> all = {0, 1, 2};
  for (const auto& [experiment, estimators] :
       {Case{SmallExperiment(4, 5), {0}}, Case{SmallExperiment(4, 5), {2}},
        Case{SmallExperiment(4, 5), all}, Case{LastingExperiment(4, 5), all}}) {
    CAPTURE(estimators.size());
    const TempDirectory scratch;
    const std::string config = WriteConfig(scratch, experiment, estimators);
    REQUIRE(Train(0, {config, "--out", scratch / "one"}).exit_code == 0);
    for (const int ranks : {2, 3, 5}) {
      CAPTURE(ranks);
      const std::string out = scratch / std::to_string(ranks);
      const FinishedProcess finished =
          Train(ranks, {config, "--out", out, "--threads", ranks == 2 ? "2" : "1"});
      CHECK_EQ(finished.exit_code, 0);
      CHECK_EQ(Theta(out), Theta(scratch / "one"));
      CHECK_EQ(MetricsLines(out), MetricsLines(scratch / "one"));
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(ReadTextFile(out + "/status/rank-" + std::to_string(rank) + ".json")
                  .find("\"state\":\"done\"") != std::string::npos);
      }
    }
  }
}

TEST_CASE("Ranks that run their windows on a device give the bytes of one process, launched too") {
  const TempDirectory scratch;
  const std::string config = WriteConfig(scratch, SmallExperiment(4, 2), {0});
  REQUIRE(Train(0, {config, "--out", scratch / "one", "--device", "emulated"}).exit_code == 0);
  const FinishedProcess launched =
      RunProcess({kLopt, "launch", "-n", "3", "--mpiexec", LOPT_MPIEXEC, "--", "meta-train", config,
                  "--out", scratch / "three", "--device", "emulated"});
  CHECK_EQ(launched.exit_code, 0);
  CHECK_EQ(Theta(scratch / "three"), Theta(scratch / "one"));
  CHECK_EQ(RunDirectory(scratch / "three").ReadManifest().device, "emulated");
  const FinishedProcess none =
      Train(2, {config, "--out", scratch / "none", "--device", "emulated", "--devices", "0"});
  CHECK_EQ(none.exit_code, 1);
  CHECK(none.errors.find("lopt: GPUs are named (--devices), but the device is 'emulated'") !=
        std::string::npos);
}

TEST_CASE(
    "A second phase with frozen tensors, equal norms and a tree has the same bytes on any ranks" *
    doctest::test_suite("nightly")) {
  const TempDirectory scratch;
  const std::string first = WriteConfig(scratch, SmallExperiment(1, 2));
  REQUIRE(Train(0, {first, "--out", scratch / "first"}).exit_code == 0);
  MetaTrainConfig config = SmallExperiment(4, 5);
  config.init_theta = scratch / "first/theta.safetensors";
  config.frozen = {".*/b"};
  config.weighting = Weighting::kEqualNorm;
  config.gradient_sum = GradientSum::kTree;
  const std::string second = WriteConfig(scratch, config);
  REQUIRE(Train(0, {second, "--out", scratch / "one"}).exit_code == 0);
  CHECK_NE(Theta(scratch / "one"), Theta(scratch / "first"));
  CHECK_EQ(FinalTheta(scratch / "one").At("mlp/linear_1/b"),
           FinalTheta(scratch / "first").At("mlp/linear_1/b"));
  CHECK_EQ(Train(3, {second, "--out", scratch / "three"}).exit_code, 0);
  CHECK_EQ(Theta(scratch / "three"), Theta(scratch / "one"));
  CHECK_EQ(MetricsLines(scratch / "three"), MetricsLines(scratch / "one"));
}

TEST_CASE(
    "One rank, and more ranks than workers, give the same bytes, and idle ranks are named once") {
  const TempDirectory scratch;
  const std::string config = WriteConfig(scratch, SmallExperiment(2, 4));
  REQUIRE(Train(0, {config, "--out", scratch / "none"}).exit_code == 0);
  REQUIRE(Train(1, {config, "--out", scratch / "one"}).exit_code == 0);
  CHECK_EQ(Theta(scratch / "one"), Theta(scratch / "none"));
  const FinishedProcess four = Train(4, {config, "--out", scratch / "four"});
  CHECK_EQ(four.exit_code, 0);
  CHECK_EQ(Count(four.output, "workers is 2, so these ranks have none and stay idle: 2, 3"), 1);
  CHECK_EQ(Theta(scratch / "four"), Theta(scratch / "none"));
  const FinishedProcess reserved =
      Train(3, {config, "--out", scratch / "reserved", "--learner-only"});
  CHECK_EQ(reserved.exit_code, 0);
  CHECK_EQ(Theta(scratch / "reserved"), Theta(scratch / "none"));
}

TEST_CASE("A run goes on from its checkpoint on another number of ranks") {
  for (const MetaTrainConfig& experiment : {SmallExperiment(4, 9), LastingExperiment(4, 9)}) {
    const TempDirectory scratch;
    const std::string config = WriteConfig(scratch, experiment);
    REQUIRE(Train(0, {config, "--out", scratch / "whole"}).exit_code == 0);
    const std::string out = scratch / "parts";
    const auto train = [](int ranks, const Words& arguments) {
      const FinishedProcess finished = Train(ranks, arguments);
      CAPTURE(finished.output);
      CHECK_EQ(finished.exit_code, 0);
    };
    train(3, {config, "--out", out, "--steps", "4"});
    train(2,
          {config, "--out", out, "--steps", "6", "--resume", "--set", "gather_checkpoints=true"});
    train(5, {config, "--out", out, "--resume"});
    CHECK_EQ(Theta(out), Theta(scratch / "whole"));
    CHECK_EQ(MetricsLines(out), MetricsLines(scratch / "whole"));
  }
}

TEST_CASE("A run is finished though a rank ends six seconds after the others" *
          doctest::test_suite("nightly")) {
  const TempDirectory scratch;
  const std::string config = WriteConfig(scratch, SmallExperiment(2, 2));
  const FinishedProcess late =
      Mpiexec({"-n", "3", "env", "LD_PRELOAD=" + BuildPath("tests/slow_finalize.so"), kLopt,
               "meta-train", config, "--out", scratch / "late"});
  CAPTURE(late.output);
  CHECK_EQ(late.exit_code, 0);
}

TEST_CASE("Messages between processes arrive as they were sent, also in more blocks than one") {
  const FinishedProcess job = Mpiexec({"-n", "3", BuildPath("tests/failing_job"), "long"});
  CAPTURE(job.errors);
  CHECK_EQ(job.exit_code, 0);
}

TEST_CASE(
    "A rank of a program's own that fails says so and ends the job, whatever others wait for") {
  const FinishedProcess one = Mpiexec({"-n", "3", BuildPath("tests/failing_job"), "rank"});
  CHECK_EQ(one.exit_code, 1);
  CHECK(one.errors.find("lopt: rank 1: it is broken") != std::string::npos);
  const FinishedProcess twice = Mpiexec({"-n", "2", BuildPath("tests/failing_job"), "twice"});
  CHECK_EQ(twice.exit_code, 1);
  CHECK(
      twice.errors.find("lopt: this job has ended on all ranks, so rank 0 cannot send any more") !=
      std::string::npos);
}

TEST_CASE(
    "Held-out evaluations on 2 ranks, launched as well, give the metrics and the best weights of "
    "one "
    "process" *
    doctest::test_suite("nightly")) {
  const TempDirectory scratch;
  MetaTrainConfig experiment = SmallExperiment(2, 6);
  experiment.eval_every = 2;
  experiment.eval_steps = 5;
  experiment.eval_seeds = 2;
  const std::string config = WriteConfig(scratch, experiment);
  REQUIRE(Train(0, {config, "--out", scratch / "one"}).exit_code == 0);
  const FinishedProcess two = Train(2, {config, "--out", scratch / "two"});
  CHECK_EQ(two.exit_code, 0);
  CHECK_EQ(two.errors, "");
  const FinishedProcess launched =
      RunProcess({kLopt, "launch", "-n", "2", "--mpiexec", LOPT_MPIEXEC, "--", "meta-train", config,
                  "--out", scratch / "launched"});
  CHECK_EQ(launched.exit_code, 0);
  CHECK_EQ(Count(MetricsLines(scratch / "one"), "\"eval_loss\""), 4);
  for (const char* run : {"two", "launched"}) {
    CAPTURE(run);
    CHECK_EQ(MetricsLines(scratch / run), MetricsLines(scratch / "one"));
    CHECK_EQ(ReadFile((scratch / run) + "/theta_best.safetensors"),
             ReadFile(scratch / "one/theta_best.safetensors"));
  }
}

TEST_CASE("SIGTERM to mpiexec saves the run on all ranks, with exit code 75") {
  for (const int ranks : {1, 3}) {
    CAPTURE(ranks);
    const TempDirectory scratch;
    const std::string config = WriteConfig(scratch, SmallExperiment(4));
    const std::string out = scratch / "stopped";
    bool sent = false;
    Words words = {config, "--out", out, "--steps", "1000000000"};
    if (ranks > 1) Append(&words, {"--learner-only", "--threads", "1"});
    const FinishedProcess stopped =
        Train(ranks, words, [&](pid_t mpiexec, const std::string& output) {
          if (!sent && output.find("updates/s") != std::string::npos) {
            sent = true;
            kill(mpiexec, SIGTERM);
          }
        });
    CHECK_EQ(stopped.exit_code, 75);
    const std::string go_on = ranks == 1 ? "" : "mpiexec -n 3 ";
    CAPTURE(stopped.output);
    const std::string again = ranks == 1 ? "" : " --threads 1 --learner-only";
    CHECK(stopped.output.ends_with("To go on:\n  " + go_on + "lopt meta-train --resume --out " +
                                   ShellQuoted(out) + again + "\n"));
    const RunManifest manifest = RunDirectory(out).ReadManifest();
    CHECK_EQ(manifest.status, "interrupted");
    const std::string steps = std::to_string(manifest.updates + 3);
    CHECK_EQ(Train(2, {config, "--out", out, "--steps", steps, "--resume"}).exit_code, 0);
    CHECK_EQ(Train(0, {config, "--out", scratch / "whole", "--steps", steps}).exit_code, 0);
    CHECK_EQ(Theta(out), Theta(scratch / "whole"));
  }
}

// `lopt train` on so many ranks; 0: without mpiexec.
FinishedProcess TrainModel(int ranks, const Words& arguments, const OnOutput& on_output = {}) {
  Words words = {kLopt, "train"};
  Append(&words, arguments);
  if (ranks == 0) return RunProcess(words, on_output);
  words.insert(words.begin(), {"-n", std::to_string(ranks)});
  return Mpiexec(words, on_output);
}

TEST_CASE("A model has the same bytes from one process and from 2 and 5 ranks, stopped or not" *
          doctest::test_suite("nightly")) {
  const TempDirectory scratch;
  const std::string config = scratch / "config.json";
  WriteTextFile(config, R"({
    "task": {"type": "ImageConv", "image_size": 8, "channels": [3, 4], "batch_size": 20,
             "data": "glyphs", "augment": {"type": "CTAugment"}},
    "optimizer": {"type": "Adam", "learning_rate": 0.01},
    "workers": 4, "steps": 20, "eval_every": 5
  })");
  const auto model = [&](const std::string& run) { return ReadFile(run + "/model.safetensors"); };
  const auto metrics = [&](const std::string& run) { return ReadTextFile(run + "/metrics.jsonl"); };
  const FinishedProcess one = TrainModel(0, {config, "--out", scratch / "one"});
  CAPTURE(one.errors);
  REQUIRE(one.exit_code == 0);
  for (const int ranks : {2, 5}) {
    CAPTURE(ranks);
    const std::string out = scratch / std::to_string(ranks);
    const FinishedProcess several = TrainModel(ranks, {config, "--out", out});
    CHECK_EQ(several.errors, ranks == 2 ? "" : several.errors);  // one rank of five is idle
    CHECK_EQ(several.exit_code, 0);
    CHECK_EQ(model(out), model(scratch / "one"));
    CHECK_EQ(metrics(out), metrics(scratch / "one"));
  }

  const std::string out = scratch / "stopped";
  bool sent = false;
  const FinishedProcess stopped =
      TrainModel(3, {config, "--out", out, "--steps", "1000000000"},
                 [&](pid_t mpiexec, const std::string& output) {
                   if (!sent && output.find("steps/s") != std::string::npos) {
                     sent = true;
                     kill(mpiexec, SIGTERM);
                   }
                 });
  CAPTURE(stopped.output);
  CHECK_EQ(stopped.exit_code, 75);
  CHECK(stopped.output.ends_with("To go on:\n  mpiexec -n 3 lopt train --resume --out " +
                                 ShellQuoted(out) + "\n"));
  const std::string steps = std::to_string(RunDirectory(out).ReadManifest().updates + 3);
  CHECK_EQ(TrainModel(2, {"--out", out, "--steps", steps, "--resume"}).exit_code, 0);
  CHECK_EQ(TrainModel(0, {config, "--out", scratch / "whole", "--steps", steps}).exit_code, 0);
  CHECK_EQ(ReadArrayFile(out + "/model.safetensors").arrays,
           ReadArrayFile((scratch / "whole") + "/model.safetensors").arrays);
}

TEST_CASE("A model's training whose rank was killed goes on to the bytes of one that was not" *
          doctest::test_suite("nightly")) {
  const TempDirectory scratch;
  const std::string config = scratch / "config.json";
  WriteTextFile(config, R"({
    "task": {"type": "ImageMLP", "image_size": 8, "hidden": [4], "batch_size": 20,
             "data": "glyphs", "augment": {"type": "CTAugment"}},
    "optimizer": {"type": "Adam", "learning_rate": 0.01},
    "workers": 4, "eval_every": 100, "checkpoint_seconds": 0, "checkpoint_steps": 20
  })");
  for (const int victim : {0, 2}) {
    CAPTURE(victim);
    const std::string out = scratch / std::to_string(victim);
    bool sent = false;
    const FinishedProcess killed = TrainModel(
        3, {config, "--out", out, "--steps", "1000000000"}, [&](pid_t, const std::string& output) {
          if (sent || output.find("steps/s") == std::string::npos) return;
          for (const auto& rank : ReadStatusFiles<RankStatus>(out, kRankStatus)) {
            if (rank.rank != victim) continue;
            kill(static_cast<pid_t>(rank.pid), SIGKILL);
            sent = true;
          }
        });
    CHECK(sent);
    CHECK_NE(killed.exit_code, 0);
    CHECK_NE(killed.exit_code, 75);
    const std::string steps =
        std::to_string(CheckpointStore(out + "/checkpoints", {}).Steps().back() + 3);
    const std::string whole = out + "-whole";
    CHECK_EQ(TrainModel(2, {"--out", out, "--steps", steps, "--resume"}).exit_code, 0);
    CHECK_EQ(TrainModel(0, {config, "--out", whole, "--steps", steps}).exit_code, 0);
    CHECK_EQ(ReadArrayFile(out + "/model.safetensors").arrays,
             ReadArrayFile(whole + "/model.safetensors").arrays);
    CHECK_EQ(ReadTextFile(out + "/metrics.jsonl"), ReadTextFile(whole + "/metrics.jsonl"));
  }
}

TEST_CASE("Ranks with different configs end the job with a message that names the difference") {
  const TempDirectory scratch;
  const std::string config = WriteConfig(scratch, SmallExperiment(2, 4));
  const std::string out = scratch / "run";
  const FinishedProcess finished =
      Mpiexec({"-n", "2", kLopt, "meta-train", config, "--out", out, ":", "-n", "1", kLopt,
               "meta-train", config, "--out", out, "--seed", "12"});
  CHECK_NE(finished.exit_code, 0);
  CHECK(finished.errors.find("lopt: rank 2 (") != std::string::npos);
  CHECK(finished.errors.find("seed: 11 on rank 0, 12 on rank 2") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("Three ranks with a plug-in give the bytes of one process with the type that it has") {
  const TempDirectory scratch;
  const std::string config = WriteConfig(scratch, SmallExperiment(4, 5), {0});
  REQUIRE(Train(0, {config, "--out", scratch / "one"}).exit_code == 0);
  const Words words = {config,  "--set",           "estimators.0.task.type=PluginTask",
                       "--out", scratch / "three", "--threads",
                       "1",     "--plugin"};
  const auto with = [&](const char* file) {
    Words all = words;
    all.push_back(BuildPath(std::string("tests/") + file));
    return Train(3, all);
  };
  CHECK_EQ(with("plugin_good.so").exit_code, 0);
  CHECK(FinalTheta(scratch / "three") == FinalTheta(scratch / "one"));
  const FinishedProcess bad = with("plugin_no_entry.so");
  CHECK_EQ(bad.exit_code, 1);
  CHECK_EQ(Count(bad.errors, "plugin_no_entry.so: it has no function lopt_plugin"), 1);
}

TEST_CASE(
    "Ranks with a plug-in train asynchronously and with a deadline, and go on in these modes") {
  for (const auto& mode :
       {WriteOptions("Async", AsyncOptions{.batch_size = 3}),
        WriteOptions("Sync", SyncOptions{.deadline_seconds = 60, .quorum = 2})}) {
    CAPTURE(mode.Dump());
    const TempDirectory scratch;
    MetaTrainConfig experiment = SmallExperiment(4, 5);
    experiment.mode = mode;
    const std::string config = WriteConfig(scratch, experiment, {0});
    const std::string run = scratch / "run";
    const Words use = {"--out", run, "--plugin", BuildPath("tests/plugin_good.so")};
    Words words = {config, "--set", "estimators.0.task.type=PluginTask"};
    Append(&words, use);
    CHECK_EQ(Train(3, words).exit_code, 0);
    words = {"--resume", "--steps", "8"};
    Append(&words, use);
    CHECK_EQ(Train(2, words).exit_code, 0);
    const auto checkpoint = CheckpointStore(run + "/checkpoints", {}).ReadNewest();
    int64_t windows = 0;
    for (const WorkerState& worker : checkpoint->workers) windows += worker.windows;
    CHECK_EQ(checkpoint->learner.outer_step, 8);
    CHECK_EQ(checkpoint->ledger.Total().Total(), windows * 60);
    CHECK_GE(checkpoint->ledger.Total()[Outcome::kUsed], 8 * 2 * 120);
  }
}

TEST_CASE("A rank that cannot read its data ends the job with a message that names it") {
  const TempDirectory scratch;
  MetaTrainConfig experiment = SmallExperiment(2, 4);
  experiment.estimators[1] = experiment.estimators[1].With("task.data", "idx");
  const std::string config = WriteConfig(scratch, experiment, {1});
  const FinishedProcess finished =
      Train(2, {config, "--out", scratch / "run", "--data-dir", scratch / "nowhere"});
  CHECK_NE(finished.exit_code, 0);
  CHECK(finished.errors.find("nowhere") != std::string::npos);
  CHECK(finished.errors.find("lopt: rank ") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(scratch / "run/theta.safetensors"));
}

TEST_CASE("Ranks that read different data end the job with a message that names them") {
  const TempDirectory scratch;
  for (const int host : {1, 2}) {
    const std::string directory = fmt::format("{}/host{}/data", scratch.path(), host);
    std::filesystem::create_directories(directory);
    WriteCsvDigits(directory, host);
  }
  MetaTrainConfig experiment = SmallExperiment(2, 4);
  experiment.estimators[1] =
      experiment.estimators[1].With("task.data", "csv").With("task.image_size", "0");
  const std::string config = WriteConfig(scratch, experiment, {1});
  const Words train = {kLopt, "meta-train", config, "--out", scratch / "run", "--data-dir", "data"};
  Words words = {"-n", "1", "-wdir", scratch / "host1"};
  Append(&words, train);
  Append(&words, {":", "-n", "1", "-wdir", scratch / "host2"});
  Append(&words, train);
  const FinishedProcess finished = Mpiexec(words);
  CHECK_NE(finished.exit_code, 0);
  CHECK_MESSAGE(finished.errors.find("lopt: rank 1 (") != std::string::npos, finished.errors);
  CHECK(finished.errors.find(") computes on csv ") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(scratch / "run/theta.safetensors"));
}

TEST_CASE("With a deadline the updates go ahead without the rank that is slow") {
  for (MetaTrainConfig experiment : {SmallExperiment(2, 10), LastingExperiment(2, 10)}) {
    const TempDirectory scratch;
    // Worker 0 has little to do, worker 1 much more.
    experiment.estimators[0] = experiment.estimators[0].With("num_tasks", "1");
    experiment.estimators[1] =
        experiment.estimators[1].With("num_tasks", "64").With("trunc_length", "200");
    experiment.estimators_per_worker = 1;
    experiment.mode = WriteOptions("Sync", SyncOptions{.deadline_seconds = 0.001, .quorum = 1});
    const std::string config = WriteConfig(scratch, experiment, {0, 1});
    const FinishedProcess finished = Train(3, {config, "--out", scratch / "run"});
    CHECK_EQ(finished.exit_code, 0);
    CHECK_EQ(Count(finished.output, "not reproducible bit for bit"), 1);
    CHECK(finished.output.find("goes ahead with 1 of 2 workers; left out for the first time: 1") !=
          std::string::npos);
    CHECK(ReadTextFile(scratch / "run/metrics.jsonl").find("\"absent_workers\":1.0") !=
          std::string::npos);
    const auto checkpoint = CheckpointStore(scratch / "run/checkpoints", {}).ReadNewest();
    const Ledger& ledger = checkpoint->ledger;
    CHECK_GT(ledger.OfWorker(1)[Outcome::kLate], 0);
    CHECK_EQ(ledger.OfWorker(0)[Outcome::kUsed], ledger.OfWorker(0).Total());
    // All windows that were started: 2 windows of 64 x 200 steps, both of a pair.
    CHECK_EQ(ledger.OfWorker(1).Total(), checkpoint->workers[1].windows * 64 * 200 * 2);
  }
}

TEST_CASE("Asynchronous training over ranks accounts for every window") {
  for (MetaTrainConfig experiment : {SmallExperiment(4, 20), LastingExperiment(4, 20)}) {
    const TempDirectory scratch;
    experiment.mode = WriteOptions("Async", AsyncOptions{.batch_size = 3});
    const std::string config = WriteConfig(scratch, experiment, {0});
    const FinishedProcess finished = Train(3, {config, "--out", scratch / "run"});
    CHECK_EQ(finished.exit_code, 0);
    const auto checkpoint = CheckpointStore(scratch / "run/checkpoints", {}).ReadNewest();
    int64_t windows = 0;
    for (const WorkerState& worker : checkpoint->workers) windows += worker.windows;
    CHECK_EQ(checkpoint->ledger.Total().Total(), windows * 60);
    CHECK_EQ(checkpoint->ledger.Total()[Outcome::kUsed], 20 * 3 * 120);
  }
}

TEST_CASE("A rank that is stopped, the learner's too, ends the job with a line that names it") {
  for (const int victim : {0, 1}) {
    CAPTURE(victim);
    const TempDirectory scratch;
    MetaTrainConfig experiment = SmallExperiment(2, 1000000000);
    experiment.worker_timeout_seconds = Patience();
    const std::string config = WriteConfig(scratch, experiment);
    const std::string out = scratch / "run";
    pid_t stopped = 0;
    const FinishedProcess finished =
        Train(2, {config, "--out", out}, [&](pid_t, const std::string& output) {
          if (stopped != 0 || output.find("updates/s") == std::string::npos) return;
          const std::string status =
              ReadTextFile(out + "/status/rank-" + std::to_string(victim) + ".json");
          stopped = std::stoi(status.substr(status.find("\"pid\":") + 6));
          kill(stopped, SIGSTOP);
        });
    CHECK_EQ(finished.exit_code, kExitRankLost);
    CHECK(finished.errors.find("lopt: rank " + std::to_string(victim) + " (") != std::string::npos);
    CHECK(finished.errors.find("longer than worker_timeout_seconds") != std::string::npos);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5 * Patience());
    while (Runs(stopped) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    CHECK_FALSE(Runs(stopped));
    CHECK(CheckpointStore(out + "/checkpoints", {}).ReadNewest().has_value());
  }
}

}  // namespace lopt
