#include "lopt/evaluation/evaluation_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/process_identity.h"
#include "lopt/base/run_lock.h"
#include "lopt/evaluation/results_file.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learnable.h"
#include "tests/csv_digits.h"
#include "tests/learner_child.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

// All evaluations run in forked children: this process never has threads.

EvaluationConfig Config3(const std::string& changed_key = "seeds", const char* value = "3") {
  return ReadEvaluationConfig(
      Config::Parse(R"({"steps": [5, 20], "seeds": 3, "trials": 3, "tuning_seeds": 2,
        "tasks": {"bowl": {"task": {"type": "FixedDimQuadraticFamily", "dim": 3}},
                  "short": {"task": {"type": "QuadraticTask", "dim": 2}, "steps": [4]},
                  "wide": {"task": {"type": "FixedDimQuadraticFamily", "dim": 6}}}})",
                    "test")
          .With(changed_key, value));
}

EvaluatedOptimizers MlpAgainst(const std::string& baselines, uint64_t theta_seed = 1) {
  const Config config = Config::Parse(R"({"type": "MLPLOpt", "hidden_size": 4})", "test");
  const std::shared_ptr<const LearnedOptimizer> optimizer = OptimizerRegistry().Make(config);
  return {.learned = {{.name = "mine",
                       .optimizer = optimizer,
                       .theta = optimizer->InitTheta(KeyFromSeed(theta_seed)),
                       .config = config,
                       .source = "mine.safetensors"}},
          .baselines = BaselinesNamed(baselines)};
}

using OnProgress = std::function<void(const EvaluationProgress&)>;

ChildEnd Run(const std::string& directory, ExistingEvaluation existing,
             const OnProgress& on_progress = {}, int threads = 1) {
  return RunInChild([&] {
    RunEvaluation(Config3(), MlpAgainst("Adam,SGD-cosine"),
                  {.out_dir = directory,
                   .threads = threads,
                   .existing = existing,
                   .command = existing == ExistingEvaluation::kKeep ? "second" : "first",
                   .version = "test",
                   .on_progress = on_progress});
  });
}

// The message of the Error that the evaluation ends with; empty if it ends well.
std::string ErrorOf(const EvaluationConfig& config, const EvaluatedOptimizers& optimizers,
                    const EvaluationRunOptions& options) {
  const TempDirectory scratch;
  RunInChild([&] {
    try {
      RunEvaluation(config, optimizers, options);
    } catch (const Error& error) {
      WriteTextFile(scratch / "error", error.what());
    }
  });
  return fs::exists(scratch / "error") ? ReadTextFile(scratch / "error") : "";
}

// The results without what is measured by the clock.
std::string Lines(const std::string& directory) {
  lopt::Results results = ReadResults(directory + "/results.jsonl");
  CHECK(results.damage.empty());
  std::string text;
  for (RunResult& result : results.runs) {
    std::ranges::fill(result.seconds, 0.0);
    text += ResultLine(result) + "\n";
  }
  return text;
}

std::string Status(const std::string& directory) {
  return ReadStoredEvaluation(directory).manifest.status;
}

// An evaluation in one go, made once.
const std::string& Undisturbed() {
  static const TempDirectory directory;
  static const bool made = [] {
    REQUIRE(Run(directory.path(), ExistingEvaluation::kRefuse).exit_code == 0);
    return true;
  }();
  REQUIRE(made);
  return directory.path();
}

void CheckResumedEqualsUndisturbed(const std::string& directory) {
  REQUIRE(Run(directory, ExistingEvaluation::kKeep, {}, 2).exit_code == 0);
  CHECK(Lines(directory) == Lines(Undisturbed()));
  CHECK(Status(directory) == "finished");
  CHECK(fs::exists(directory + "/table.md"));
  CHECK(fs::exists(directory + "/table.csv"));
}

void CopyOfUndisturbed(const std::string& directory) {
  fs::copy(Undisturbed(), directory,
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
}

// Ends the process at the `call`-th report of a task, from 0.
OnProgress KillAt(const std::string& task, int call) {
  return [=, seen = 0](const EvaluationProgress& progress) mutable {
    if (progress.task == task && seen++ == call) ::raise(SIGKILL);
  };
}

TEST_CASE("An evaluation that is killed anywhere and resumed ends with the same results") {
  for (const char* task : {"bowl", "short", "wide"}) {
    for (const int call : {0, 1, 9, 20}) {  // tuning begins, goes on; judging goes on
      CAPTURE(task);
      CAPTURE(call);
      const TempDirectory directory;
      REQUIRE(Run(directory.path(), ExistingEvaluation::kRefuse, KillAt(task, call)).signal ==
              SIGKILL);
      CHECK(Status(directory.path()) == "running");
      CheckResumedEqualsUndisturbed(directory.path());
    }
  }
}

TEST_CASE("With tuned steps, too, an evaluation that is killed ends with the same results") {
  EvaluatedOptimizers optimizers = MlpAgainst("SGD");
  AddTunedSteps(&optimizers);
  const auto run = [&](const std::string& directory, ExistingEvaluation existing,
                       const OnProgress& on_progress) {
    return RunInChild([&] {
      RunEvaluation(Config3(), optimizers,
                    {.out_dir = directory, .existing = existing, .on_progress = on_progress});
    });
  };
  const TempDirectory whole, killed;
  REQUIRE(run(whole.path(), ExistingEvaluation::kRefuse, {}).exit_code == 0);
  REQUIRE(run(killed.path(), ExistingEvaluation::kRefuse, KillAt("short", 1)).signal == SIGKILL);
  const std::vector<NamedLearnedOptimizer> stored =
      ReadStoredEvaluation(killed.path()).optimizers.learned;
  REQUIRE(stored.size() == 2);
  CHECK_FALSE(stored[0].tuned);
  CHECK(stored[1].tuned);
  REQUIRE(run(killed.path(), ExistingEvaluation::kKeep, {}).exit_code == 0);
  CHECK(Lines(killed.path()) == Lines(whole.path()));

  EvaluatedOptimizers untuned = optimizers;
  untuned.learned[1].tuned = false;
  CHECK(ErrorOf(Config3(), untuned,
                {.out_dir = killed.path(), .existing = ExistingEvaluation::kKeep}) ==
        "cannot resume " + killed.path() +
            ": the steps of 'mine-tuned' are tuned in the directory, not tuned now");
}

TEST_CASE("An evaluation that is killed again and again ends with the same results") {
  const TempDirectory directory;
  ExistingEvaluation existing = ExistingEvaluation::kRefuse;
  for (const auto& [task, call] :
       {std::pair("bowl", 3), {"bowl", 15}, {"short", 2}, {"short", 9}, {"wide", 0}}) {
    REQUIRE(Run(directory.path(), existing, KillAt(task, call)).signal == SIGKILL);
    existing = ExistingEvaluation::kKeep;
  }
  CheckResumedEqualsUndisturbed(directory.path());
}

TEST_CASE("An evaluation that is killed inside the write of its results ends with the same ones") {
  for (const int bytes : {1, 700, 2500, 6000}) {
    CAPTURE(bytes);
    const TempDirectory directory;
    const std::string results = directory / "results.jsonl";
    // The system ends a process that writes a file beyond this size.
    const ChildEnd end =
        Run(directory.path(), ExistingEvaluation::kRefuse, [&](const EvaluationProgress& progress) {
          if (progress.task != "short") return;
          const rlim_t size = fs::file_size(results) + static_cast<rlim_t>(bytes);
          const rlimit limit = {.rlim_cur = size, .rlim_max = size};
          ::setrlimit(RLIMIT_FSIZE, &limit);
        });
    REQUIRE(end.signal == SIGXFSZ);
    CheckResumedEqualsUndisturbed(directory.path());
  }
}

TEST_CASE("Results that are cut off anywhere are made whole again") {
  const std::string whole = ReadTextFile(Undisturbed() + "/results.jsonl");
  std::vector<size_t> line_ends;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] == '\n') line_ends.push_back(i + 1);
  }
  REQUIRE(line_ends.size() == 3 * 3 * 3);  // tasks, optimizers, seeds
  for (const size_t size : {size_t{0}, size_t{1}, line_ends[0], line_ends[7] + 50, line_ends[8] - 1,
                            line_ends[8], line_ends[8] + 1, line_ends[20], whole.size() - 1}) {
    CAPTURE(size);
    const TempDirectory directory;
    CopyOfUndisturbed(directory.path());
    WriteTextFile(directory / "results.jsonl", whole.substr(0, size));
    CheckResumedEqualsUndisturbed(directory.path());
    const std::string now = ReadTextFile(directory / "results.jsonl");
    if (size >= line_ends[8]) CHECK(now.substr(0, line_ends[8]) == whole.substr(0, line_ends[8]));
  }
}

TEST_CASE("A stop ends with the results of whole tasks, and can be resumed") {
  const TempDirectory directory;
  const TempDirectory scratch;
  REQUIRE(RunInChild([&] {
            std::atomic<bool> stop = false;
            const EvaluationRunResult result = RunEvaluation(
                Config3(), MlpAgainst("Adam,SGD-cosine"),
                {.out_dir = directory.path(),
                 .threads = 2,
                 .on_progress = [&](const EvaluationProgress& p) { stop = p.task == "short"; },
                 .stop = &stop});
            Require(result.tasks == 3 && result.tasks_before == 0 && result.tasks_ended == 1,
                    "{} of {} tasks", result.tasks_ended, result.tasks);
          }).exit_code == 0);
  CHECK(Status(directory.path()) == "interrupted");
  CHECK(ReadResults(directory / "results.jsonl").runs.size() == 9);
  CHECK(fs::exists(directory / "table.md"));
  CheckResumedEqualsUndisturbed(directory.path());
  CHECK(ReadStoredEvaluation(directory.path()).manifest.command.empty());
}

TEST_CASE("A resumed evaluation keeps its command and adds up its seconds") {
  const TempDirectory directory;
  CopyOfUndisturbed(directory.path());
  const std::string before = ReadTextFile(directory / "results.jsonl");
  const double seconds = ReadStoredEvaluation(directory.path()).manifest.seconds;
  REQUIRE(seconds > 0);
  CheckResumedEqualsUndisturbed(directory.path());
  CHECK(ReadTextFile(directory / "results.jsonl") == before);  // nothing was left to train
  CHECK(ReadStoredEvaluation(directory.path()).manifest.seconds == seconds);
  CHECK(ReadStoredEvaluation(directory.path()).manifest.command == "first");
}

TEST_CASE("What differs from the evaluation that is resumed is an error that names it") {
  const TempDirectory directory;
  CopyOfUndisturbed(directory.path());
  const std::string& path = directory.path();
  const std::string start = "cannot resume " + path + ": ";
  const EvaluatedOptimizers optimizers = MlpAgainst("Adam,SGD-cosine");
  const EvaluationRunOptions options{.out_dir = path, .existing = ExistingEvaluation::kKeep};
  CHECK(ErrorOf(Config3("trials", "4"), optimizers, options) ==
        start +
            "the config has changed: trials: 3 in the directory, 4 now. On resume only these keys "
            "may change: name, data_dir");
  CHECK(ErrorOf(Config3("tasks.wide.task.dim", "7"), optimizers, options) ==
        start +
            "the config has changed: tasks.wide.task.dim: 6 in the directory, 7 now. On resume "
            "only these keys may change: name, data_dir");
  CHECK(ErrorOf(Config3(), MlpAgainst("Adam"), options) ==
        start +
            "the optimizers have changed: Adam, SGD-cosine, mine in the directory, Adam, mine now");
  CHECK(
      ErrorOf(Config3(), MlpAgainst("Adam,SGD-cosine", 2), options) ==
      start +
          "the weights of 'mine' in mine.safetensors are not those that it began with; go on with "
          "its own copy of them, in " +
          path + "/thetas");
  EvaluatedOptimizers other = optimizers;
  other.learned[0].config = other.learned[0].config.With("hidden_size", "5");
  CHECK(ErrorOf(Config3(), other, options) ==
        start + "the optimizer 'mine' has changed: hidden_size: 4 in the directory, 5 now");
  CHECK(ErrorOf(Config3("name", "renamed"), optimizers, options).empty());
}

// Puts `to` into the place of the only `from` in the manifest of the directory.
void EditManifest(const std::string& directory, const std::string& from, const std::string& to) {
  const std::string path = directory + "/manifest.json";
  std::string text = ReadTextFile(path);
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(text.find(from, at + 1) == std::string::npos);
  WriteTextFile(path, text.replace(at, from.size(), to));
}

constexpr const char* kWaysOut =
    "go on with the program that began it (test), choose another directory (--out), or replace the "
    "evaluation (--overwrite)";

TEST_CASE("An evaluation that another tuner has tuned is not gone on with") {
  const TempDirectory directory;
  const std::string& path = directory.path();
  const EvaluationRunOptions options{
      .out_dir = path, .existing = ExistingEvaluation::kKeep, .version = "test"};
  const auto error_of = [&](const std::string& baselines, const std::string& tuner) {
    EditManifest(path, "\n  \"tuner\": 2,", tuner);
    return ErrorOf(Config3(), MlpAgainst(baselines), options);
  };
  const auto text = [&](const std::string& who) {
    return "cannot resume " + path + ": its results were tuned by " + who + " ('tuner' in " + path +
           "/manifest.json), and this program has version 2 of the tuner, so tasks would be tuned "
           "in two ways: " +
           kWaysOut;
  };
  CopyOfUndisturbed(path);
  CHECK(error_of("Adam,SGD-cosine", "") == text("a version that is not named"));
  CHECK(Lines(path) == Lines(Undisturbed()));
  CopyOfUndisturbed(path);
  CHECK(error_of("Adam,SGD-cosine", "\n  \"tuner\": 3,") == text("version 3"));

  SUBCASE("Without results of whole tasks there is nothing that another has tuned") {
    CopyOfUndisturbed(path);
    const std::string results = ReadTextFile(directory / "results.jsonl");
    WriteTextFile(directory / "results.jsonl", results.substr(0, results.find('\n') + 1));
    CHECK(error_of("Adam,SGD-cosine", "").empty());
    CHECK(ReadStoredEvaluation(path).manifest.tuner == 2);
    CHECK(Lines(path) == Lines(Undisturbed()));
  }
  SUBCASE("Where nothing is tuned, any tuner will do") {
    REQUIRE(ErrorOf(Config3(), MlpAgainst("Adam-untuned"),
                    {.out_dir = path, .existing = ExistingEvaluation::kReplace})
                .empty());
    CHECK(error_of("Adam-untuned", "").empty());
  }
}

TEST_CASE("An evaluation whose baselines have changed is not gone on with") {
  const TempDirectory directory;
  const std::string& path = directory.path();
  const EvaluationRunOptions options{
      .out_dir = path, .existing = ExistingEvaluation::kKeep, .version = "test"};
  const auto error_after = [&](const std::string& from, const std::string& to) {
    REQUIRE(ErrorOf(Config3(), MlpAgainst("SGD,Adam-untuned"),
                    {.out_dir = path, .existing = ExistingEvaluation::kReplace, .version = "test"})
                .empty());
    EditManifest(path, from, to);
    return ErrorOf(Config3(), MlpAgainst("SGD,Adam-untuned"), options);
  };
  const std::string start = "cannot resume " + path + ": " + path + "/manifest.json: the baseline ";
  CHECK(error_after("\"highest\": 100.0", "\"highest\": 10.0") ==
        start +
            "'SGD' has changed: optimizers[0].baseline.tuned.learning_rate.highest: 10.0 in the "
            "directory, 100.0 now; " +
            kWaysOut);
  CHECK(error_after("\"beta2\": 0.999", "\"beta2\": 0.99") ==
        start +
            "'Adam-untuned' has changed: optimizers[1].baseline.optimizer.beta2: 0.99 in the "
            "directory, 0.999 now; " +
            kWaysOut);
}

TEST_CASE("Steps that are multiplied by another number are an error") {
  const TempDirectory directory;
  EvaluatedOptimizers optimizers = MlpAgainst("none");
  optimizers.learned[0].step_multiplier = 0.3;
  EvaluationRunOptions options{.out_dir = directory.path()};
  REQUIRE(ErrorOf(Config3(), optimizers, options).empty());
  options.existing = ExistingEvaluation::kKeep;
  CHECK(ErrorOf(Config3(), optimizers, options).empty());
  optimizers.learned[0].step_multiplier = 1;
  CHECK(ErrorOf(Config3(), optimizers, options) ==
        "cannot resume " + directory.path() +
            ": the steps of 'mine' are multiplied by 0.3 in the directory, by 1 now");
}

TEST_CASE("An evaluation goes on with the data that it began with alone") {
  const TempDirectory data;
  const TempDirectory other;
  WriteCsvDigits(data.path(), 1);
  WriteCsvDigits(other.path(), 2);
  EvaluationConfig config = Config3();
  config.tasks.resize(1);
  config.tasks[0].task = Config::Parse(
      R"({"type": "ImageMLP", "data": "csv", "image_size": 0, "hidden": [2], "batch_size": 4})",
      "the task");
  config.data_dir = data.path();
  const TempDirectory directory;
  EvaluationRunOptions options{.out_dir = directory.path()};
  const EvaluatedOptimizers optimizers = MlpAgainst("Adam");
  REQUIRE(ErrorOf(config, optimizers, options).empty());
  options.existing = ExistingEvaluation::kKeep;
  config.data_dir = other.path();
  CHECK(ErrorOf(config, optimizers, options)
            .starts_with("cannot resume " + directory.path() + ": it was computed on csv "));
  config.data_dir = data.path();
  CHECK(ErrorOf(config, optimizers, options).empty());
}

TEST_CASE("Another instruction set is an error unless it is allowed") {
  const std::vector<std::string> isas = SupportedIsas();
  if (isas.size() < 2) {
    SkipTest("this processor has one instruction set");
    return;
  }
  const TempDirectory directory;
  CopyOfUndisturbed(directory.path());
  EvaluationRunOptions options{.out_dir = directory.path(), .existing = ExistingEvaluation::kKeep};
  const std::string best = CurrentIsa();
  const EvaluatedOptimizers optimizers = MlpAgainst("Adam,SGD-cosine");
  PinIsa(isas.back());
  CHECK(ErrorOf(Config3(), optimizers, options) ==
        "cannot resume " + directory.path() + ": it was computed on instruction set " + best +
            ", this process uses " + isas.back() +
            ", so the results would have other bits; pin it (--isa), or allow the change "
            "(--allow-isa-change)");
  options.allow_isa_change = true;
  CHECK(ErrorOf(Config3(), optimizers, options).empty());
  CHECK(ReadStoredEvaluation(directory.path()).manifest.isa == isas.back());
  PinIsa(best);
}

TEST_CASE("An evaluation that is there is neither resumed nor replaced unasked") {
  const TempDirectory directory;
  CopyOfUndisturbed(directory.path());
  WriteTextFile(directory / "notes.txt", "mine");
  WriteTextFile(directory / "config.json.tmp.1.0", "left by a kill");
  const EvaluatedOptimizers optimizers = MlpAgainst("SGD");
  CHECK(ErrorOf(Config3(), optimizers, {.out_dir = directory.path()}) ==
        directory.path() +
            " holds an evaluation already: resume it (--resume), replace it (--overwrite), or "
            "choose another directory");
  CHECK_THROWS_WITH_AS(
      EvaluationDirectory(directory.path(), ExistingEvaluation::kRefuse, EvaluationUse::kReplay),
      (directory.path() +
       " holds an evaluation already: replace it (--overwrite), or choose another directory")
          .c_str(),
      Error);
  CHECK(
      ErrorOf(
          Config3(), optimizers,
          {.out_dir = directory.path(), .threads = 0, .existing = ExistingEvaluation::kReplace}) ==
      "ThreadPool: the number of threads must be at least 1 and at most 1024, got 0");
  CHECK(Lines(directory.path()) == Lines(Undisturbed()));
  CHECK(ErrorOf(Config3(), optimizers,
                {.out_dir = directory.path(), .existing = ExistingEvaluation::kReplace})
            .empty());
  CHECK(ReadResults(directory / "results.jsonl").runs.size() == 3 * 2 * 3);
  CHECK(ReadTextFile(directory / "notes.txt") == "mine");
  CHECK_FALSE(fs::exists(directory / "config.json.tmp.1.0"));
}

TEST_CASE("Where there is no evaluation there is nothing to resume") {
  const TempDirectory scratch;
  const auto error_of = [&](const std::string& path) {
    return ErrorOf(Config3(), MlpAgainst("SGD"),
                   {.out_dir = path, .existing = ExistingEvaluation::kKeep});
  };
  CHECK(error_of(scratch / "nowhere") ==
        "cannot resume: " + (scratch / "nowhere") + " holds no evaluation");
  CHECK_FALSE(fs::exists(scratch / "nowhere"));
  WriteTextFile(scratch / "config.json", "{}");
  CHECK(error_of(scratch.path()) == "cannot resume: " + scratch.path() +
                                        " holds no evaluation (there is no " +
                                        (scratch / "manifest.json") + ")");
  WriteTextFile(scratch / "manifest.json", R"({"format": "lopt run 1"})");
  CHECK(error_of(scratch.path()) ==
        (scratch / "manifest.json") +
            ": its format is 'lopt run 1', this program reads 'lopt evaluation 1'");
  fs::create_directory(scratch / "checkpoints");
  CHECK(error_of(scratch.path()) ==
        scratch.path() + " holds a training run; choose another directory for the evaluation");
  WriteTextFile(scratch / "windows.bin", "");
  CHECK(error_of(scratch.path()) ==
        scratch.path() + " holds a meta-training run; choose another directory for the evaluation");
}

TEST_CASE("An evaluation that was killed while it began is not resumed, and may be begun anew") {
  const TempDirectory directory;
  for (const char* last : {"config.json", "results.jsonl"}) {
    CopyOfUndisturbed(directory.path());
    fs::remove(directory / last);
    CHECK(ErrorOf(Config3(), MlpAgainst("Adam,SGD-cosine"),
                  {.out_dir = directory.path(), .existing = ExistingEvaluation::kKeep}) ==
          "cannot resume: the evaluation in " + directory.path() + " had not begun (there is no " +
              last + "); begin anew (--overwrite)");
  }
  REQUIRE(Run(directory.path(), ExistingEvaluation::kReplace).exit_code == 0);
  CHECK(Lines(directory.path()) == Lines(Undisturbed()));
}

TEST_CASE("An evaluation whose tables cannot be written has failed, as its manifest says") {
  const TempDirectory directory;
  const std::string error =
      ErrorOf(Config3(), MlpAgainst("SGD"),
              {.out_dir = directory.path(), .on_progress = [&](const EvaluationProgress&) {
                 fs::create_directories(directory / "table.md/in the way");
               }});
  CHECK(error.find("table.md") != std::string::npos);
  const EvaluationManifest manifest = ReadStoredEvaluation(directory.path()).manifest;
  CHECK(manifest.status == "failed");
  CHECK(manifest.error == error);
}

TEST_CASE("A directory that another evaluation is using is an error") {
  const TempDirectory directory;
  CopyOfUndisturbed(directory.path());
  const RunLock other(directory.path());
  for (const ExistingEvaluation existing :
       {ExistingEvaluation::kRefuse, ExistingEvaluation::kReplace, ExistingEvaluation::kKeep}) {
    CHECK(ErrorOf(Config3(), MlpAgainst("Adam,SGD-cosine"),
                  {.out_dir = directory.path(), .existing = existing}) ==
          fmt::format("{} is in use: process {} on host {} runs in it", directory.path(),
                      ::getpid(), HostName()));
  }
  CHECK(Lines(directory.path()) == Lines(Undisturbed()));
}

TEST_CASE("An evaluation whose directory another process took over writes no more into it") {
  const TempDirectory directory;
  const std::string error =
      ErrorOf(Config3(), MlpAgainst("SGD"),
              {.out_dir = directory.path(), .on_progress = [&](const EvaluationProgress&) {
                 if (fs::remove(directory / "run.lock")) {
                   WriteTextFile(directory / "results.jsonl", "");
                   WriteTextFile(directory / "manifest.json", "the other's");
                 }
               }});
  CHECK(error.starts_with(directory.path() + ": another process has taken this directory over"));
  CHECK(ReadTextFile(directory / "results.jsonl") == "");
  CHECK(ReadTextFile(directory / "manifest.json") == "the other's");
  CHECK(!fs::exists(directory / "table.md"));
}

TEST_CASE("Results of something else, or damaged before their end, are an error") {
  const TempDirectory directory;
  CopyOfUndisturbed(directory.path());
  const std::string whole = ReadTextFile(directory / "results.jsonl");
  const auto error_of = [&](const std::string& results) {
    WriteTextFile(directory / "results.jsonl", results);
    return ErrorOf(Config3(), MlpAgainst("Adam,SGD-cosine"),
                   {.out_dir = directory.path(), .existing = ExistingEvaluation::kKeep});
  };
  const std::string first = whole.substr(0, whole.find('\n') + 1);
  CHECK(error_of("garbage\n" + whole) == (directory / "results.jsonl") + ", line 1: not JSON");
  CHECK(error_of(first + first) ==
        "cannot resume " + directory.path() +
            ": results.jsonl: result 2 is of task 'bowl', Adam, seed 0, after 5, 20 steps; this "
            "evaluation has task 'bowl', Adam, seed 1, after 5, 20 steps there");
  CHECK(error_of(whole + first) ==
        "cannot resume " + directory.path() +
            ": results.jsonl: the evaluation has 27 results of 3 tasks, 3 optimizers and 3 seeds, "
            "got 28");
  CHECK(error_of(whole).empty());
}

}  // namespace
}  // namespace lopt
