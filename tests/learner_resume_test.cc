#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/safetensors.h"
#include "lopt/base/tensorboard.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "tests/csv_digits.h"
#include "tests/error_of.h"
#include "tests/learner_local_job.h"
#include "tests/learner_runs.h"
#include "tests/replace_in_file.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

MetaTrainResult Train(const MetaTrainConfig& config, const std::string& directory) {
  return RunMetaTraining(config, {.out_dir = directory});
}

MetaTrainResult Resume(const MetaTrainConfig& config, const std::string& directory) {
  return RunMetaTraining(config, {.out_dir = directory, .resume = true});
}

void Append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

TEST_CASE("Damage to files that do not hold the state stops no resume and changes no bit") {
  const TempDirectory whole;
  const TempDirectory parts;
  MetaTrainConfig config = SmallExperiment(1);
  config.eval_every = 5;
  config.eval_steps = 2;
  config.eval_seeds = 1;
  Train(config, whole.path());
  config.meta_steps = 10;
  Train(config, parts.path());
  // A machine that crashes leaves zeros where data was not flushed.
  const std::string zeros(1000, '\0');
  Append(parts / "metrics.jsonl", zeros);
  Append(parts / "throughput.jsonl", zeros);
  Append(parts / EventFiles(parts.path()).back(), zeros);
  WriteTextFile(parts / "best.json", "{\"updates\": 5, \"eval_lo");
  ReplaceInFile(parts / "manifest.json", "\"threads\": 1", "\"threads\": \"one\"");
  config.meta_steps = 20;
  Resume(config, parts.path());
  CHECK(FinalTheta(parts.path()) == FinalTheta(whole.path()));
  CHECK(MetricsLines(parts.path()) == MetricsLines(whole.path()));
  CHECK(RunDirectory(parts.path()).ReadManifest().status == "finished");
  CHECK(fs::exists(parts / "theta_best.safetensors"));
}

// Inner steps of the run so far, by their outcome.
StepShares Shares(const std::string& directory) {
  return CheckpointStore(directory + "/checkpoints", {}).ReadNewest()->ledger.Total();
}

TEST_CASE("A run can go back to a checkpoint, and ends as one that never went further") {
  MetaTrainConfig config = SmallExperiment(3);
  config.keep_last = 9;
  config.eval_every = 2;
  config.eval_steps = 2;
  config.eval_seeds = 1;
  const TempDirectory whole;
  Train(config, whole.path());
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    const TempDirectory back;
    Train(config, back.path());
    CHECK(ErrorOf([&] {
            RunMetaTraining(config, {.out_dir = back.path(), .resume = true, .from = 8});
          }) ==
          back.path() + "/checkpoints holds no checkpoint of step 8; there are: 0, 7, 14, 20");
    MetaTrainConfig shorter = config;
    shorter.meta_steps = 8;
    const LocalJob job =
        RunLocalJob(shorter, ranks, {.out_dir = back.path(), .resume = true, .from = 7});
    CHECK(job.errors == std::vector<std::string>(static_cast<size_t>(ranks)));
    const TempDirectory straight;
    Train(shorter, straight.path());
    CHECK(FinalTheta(back.path()) == FinalTheta(straight.path()));
    CHECK(MetricsLines(back.path()) == MetricsLines(straight.path()));
    CHECK(CheckpointStore(back / "checkpoints", {}).Steps() == std::vector<int64_t>{0, 7, 8});

    Resume(config, back.path());
    CHECK(FinalTheta(back.path()) == FinalTheta(whole.path()));
    CHECK(MetricsLines(back.path()) == MetricsLines(whole.path()));
    CHECK(ReadTextFile(back / "best.json") == ReadTextFile(whole / "best.json"));
    // Updates 7 to 19 were run twice.
    CHECK(Shares(back.path())[Outcome::kUsed] == Shares(whole.path())[Outcome::kUsed]);
    CHECK(Shares(back.path())[Outcome::kLost] > 0);
    CHECK(Shares(back.path()).Total() ==
          2 * Shares(whole.path()).Total() -
              CheckpointStore(whole / "checkpoints", {}).Read(7).ledger.Total().Total());
  }
}

TEST_CASE("A run goes on with the data that it began with, wherever they lie now") {
  const TempDirectory data;
  const TempDirectory moved;
  const TempDirectory other;
  WriteCsvDigits(data.path(), 1);
  WriteCsvDigits(moved.path(), 1);
  WriteCsvDigits(other.path(), 2);
  MetaTrainConfig config = SmallExperiment(1, 10);
  config.estimators = {config.estimators[1].With("task.data", "csv").With("task.image_size", "0")};
  config.data_dir = data.path();
  const TempDirectory whole;
  const TempDirectory parts;
  Train(config, whole.path());
  config.meta_steps = 5;
  Train(config, parts.path());
  config.meta_steps = 10;
  config.data_dir = other.path();
  const std::string error = ErrorOf([&] { Resume(config, parts.path()); });
  CHECK(error.starts_with("cannot resume from " + parts.path() +
                          "/checkpoints/step-00000005: it was computed on csv "));
  CHECK(error.find(", and here it would go on with csv ") != std::string::npos);
  config.data_dir = moved.path();
  Resume(config, parts.path());
  CHECK(FinalTheta(parts.path()) == FinalTheta(whole.path()));
}

TEST_CASE(
    "A run judges theta on the data that it began with, which need not be data of its training") {
  const TempDirectory data;
  const TempDirectory other;
  WriteCsvDigits(data.path(), 1);
  WriteCsvDigits(other.path(), 2);
  MetaTrainConfig config = SmallExperiment(1, 4);
  const Config images = Config::FromJson(config.estimators[1].json().at("task"));
  config.eval_tasks = {images.With("data", "csv").With("image_size", "0")};
  config.eval_every = 2;
  config.eval_steps = 2;
  config.eval_seeds = 1;
  config.data_dir = data.path();
  const TempDirectory run;
  Train(config, run.path());
  config.meta_steps = 8;
  config.data_dir = other.path();
  const auto check_error = [&] {
    CHECK(ErrorOf([&] { Resume(config, run.path()); })
              .starts_with("cannot resume from " + run.path() +
                           "/checkpoints/step-00000004: it was computed on csv "));
  };
  check_error();
  // As a version leaves it that had fewer keys.
  const CheckpointStore store(run / "checkpoints", {});
  Checkpoint checkpoint = *store.ReadNewest();
  nlohmann::ordered_json json = checkpoint.config.json();
  REQUIRE(json.at("eval_tasks").at(0).erase("norm") == 1);
  checkpoint.config = Config::FromJson(json);
  RemoveAll(store.Path(4));
  store.Write(checkpoint);
  check_error();
  // Other held-out tasks may have other data, and where none are judged there are none.
  MetaTrainConfig changed = config;
  changed.eval_tasks = {config.eval_tasks[0].With("batch_size", "4")};
  changed.meta_steps = 6;
  Resume(changed, run.path());
  config.eval_every = 0;
  config.data_dir = "";
  Resume(config, run.path());
}

TEST_CASE("A run that is judged again after a while without remembers the data it was judged on") {
  const TempDirectory data;
  const TempDirectory other;
  WriteCsvDigits(data.path(), 1);
  WriteCsvDigits(other.path(), 2);
  MetaTrainConfig config = SmallExperiment(1, 2);
  const Config images = Config::FromJson(config.estimators[1].json().at("task"));
  config.eval_tasks = {images.With("data", "csv").With("image_size", "0")};
  config.eval_every = 2;
  config.eval_steps = 2;
  config.eval_seeds = 1;
  config.data_dir = data.path();
  const TempDirectory run;
  Train(config, run.path());
  config.meta_steps = 4;
  config.eval_every = 0;
  config.data_dir = "";
  Resume(config, run.path());
  config.meta_steps = 6;
  config.eval_every = 2;
  config.data_dir = other.path();
  CHECK(ErrorOf([&] { Resume(config, run.path()); })
            .starts_with("cannot resume from " + run.path() +
                         "/checkpoints/step-00000004: it was computed on csv "));
  config.data_dir = data.path();
  Resume(config, run.path());
}

TEST_CASE("A data directory that not even held-out tasks read is an error") {
  MetaTrainConfig config = SmallExperiment(1, 1);
  config.data_dir = "somewhere";
  config.eval_tasks = {Config::FromJson(config.estimators[0].json().at("task"))};
  config.eval_every = 1;
  const TempDirectory run;
  CHECK(ErrorOf([&] { Train(config, run.path()); }) ==
        "data_dir is somewhere, but no task of the config reads from it");
}

TEST_CASE("Going back wants a run that is resumed") {
  const TempDirectory directory;
  CHECK(ErrorOf([&] {
          RunMetaTraining(SmallExperiment(1), {.out_dir = directory.path(), .from = 7});
        }) == "--from STEP says where to go on; it wants --resume");
}

TEST_CASE("A run whose checkpoints are gone is not begun anew without being told to") {
  const TempDirectory directory;
  const MetaTrainConfig config = SmallExperiment(1, 3);
  Train(config, directory.path());
  fs::remove_all(directory / "checkpoints");
  const std::string metrics = MetricsLines(directory.path());
  const std::string remedy = "put its checkpoints back into " + directory.path() +
                             "/checkpoints, or begin anew (--overwrite)";
  const auto resume_error = [&] { return ErrorOf([&] { Resume(config, directory.path()); }); };
  CHECK(resume_error() == "cannot resume: the run in " + directory.path() +
                              " has had checkpoints, but they are gone; " + remedy);
  ReplaceInFile(directory / "manifest.json", "\"updates\": 3", "\"updates\": 0");
  ReplaceInFile(directory / "manifest.json", "finished", "running");
  CHECK(resume_error().ends_with(remedy));
  ReplaceInFile(directory / "manifest.json", "updates", "up");
  CHECK(resume_error().starts_with("cannot resume without a checkpoint: "));
  CHECK(resume_error().ends_with(remedy));
  CHECK(MetricsLines(directory.path()) == metrics);
}

TEST_CASE("A run that died before its first checkpoint begins again, from the same theta") {
  const TempDirectory first;
  const TempDirectory second;
  const std::string file = Train(SmallExperiment(1, 2), first.path()).theta_path;
  MetaTrainConfig config = SmallExperiment(1, 5);
  config.init_theta = file;
  const MetaTrainResult tuned = Train(config, second.path());
  // What there is of it then.
  fs::remove_all(second / "checkpoints");
  ReplaceInFile(second / "manifest.json", "\"updates\": 5", "\"updates\": 0");
  ReplaceInFile(second / "manifest.json", "finished", "starting");
  CHECK(Resume(config, second.path()).learner.theta == tuned.learner.theta);
}

TEST_CASE("A first checkpoint that cannot be written is a run that has failed, not one that runs") {
  const TempDirectory directory;
  rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const std::string error = ErrorOf([&] {
    RunMetaTraining(SmallExperiment(1, 2),
                    {.out_dir = directory.path(), .on_event = [&](std::string_view event) {
                       CHECK(RunDirectory(directory.path()).ReadManifest().status == "starting");
                       if (event == "checkpoint:0:learner") {
                         const rlimit limit = {.rlim_cur = 2000, .rlim_max = before.rlim_max};
                         ::setrlimit(RLIMIT_FSIZE, &limit);
                       }
                     }});
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(error.ends_with("/learner.safetensors: File too large"));
  const RunManifest manifest = RunDirectory(directory.path()).ReadManifest();
  CHECK(manifest.status == "failed");
  CHECK(manifest.error == error);
  CHECK(Resume(SmallExperiment(1, 2), directory.path()).updates == 2);
}

TEST_CASE("What is wrong with the files of a run is said before any rank reports") {
  const TempDirectory directory;
  const MetaTrainConfig config = SmallExperiment(1, 3);
  Train(config, directory.path());
  fs::remove_all(directory / "status");
  fs::remove(directory / "metrics.jsonl");
  fs::create_directory(directory / "metrics.jsonl");
  CHECK(ErrorOf([&] { Resume(config, directory.path()); }) ==
        "cannot open " + directory.path() + "/metrics.jsonl: Is a directory");
  CHECK_FALSE(fs::exists(directory / "status"));
}

}  // namespace
}  // namespace lopt
