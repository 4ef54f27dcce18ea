#include <doctest/doctest.h>
#include <fmt/core.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "lopt/base/file.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/tools/shell.h"
#include "tests/learner_runs.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

// A shell command that trains in the directory "run" for so many updates.
std::string Train(const TempDirectory& scratch, int64_t steps) {
  WriteTextFile(scratch / "config.json", WriteOptions("", SmallExperiment(1)).Dump());
  return fmt::format("'{}' meta-train '{}' --out '{}' --threads 1 --steps {}", BuildPath("lopt"),
                     scratch / "config.json", scratch / "run", steps);
}

// Sends the signal once this was written, by default anything: its handler is there then.
FinishedProcess RunAndSend(int signal, const std::string& command, const char* after = "") {
  bool sent = false;
  return RunProcess({"/bin/sh", "-c", command}, [&](pid_t child, const std::string& output) {
    if (sent || output.find(after) == std::string::npos) return;
    kill(child, signal);
    sent = true;
  });
}

std::string Status(const TempDirectory& scratch) {
  return RunDirectory(scratch / "run").ReadManifest().status;
}

TEST_CASE("Signals to stop save the run, the end of a terminal's session among them") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    CAPTURE(signal);
    const TempDirectory scratch;
    const FinishedProcess stopped = RunAndSend(signal, "exec " + Train(scratch, 1000000000));
    CHECK_EQ(stopped.exit_code, 75);
    CHECK(stopped.errors.find("Stopping after this update; once more to stop at once.") !=
          std::string::npos);
    CHECK_EQ(Status(scratch), "interrupted");
  }
}

TEST_CASE("A signal that comes before main begins is a stop that saves the run") {
  const TempDirectory scratch;
  const std::string signalled =
      fmt::format("LD_PRELOAD={} exec {}", BuildPath("tests/early_signal.so"), Train(scratch, 10));
  const FinishedProcess stopped = RunProcess({"/bin/sh", "-c", signalled});
  INFO(stopped.errors);
  CHECK_EQ(stopped.exit_code, 75);
  CHECK(stopped.errors.find("Stopping after this update; once more to stop at once.") !=
        std::string::npos);
  CHECK_EQ(Status(scratch), "interrupted");
  // Commands that save nothing are ended by it.
  const std::string version = fmt::format("LD_PRELOAD={} exec {} version",
                                          BuildPath("tests/early_signal.so"), BuildPath("lopt"));
  CHECK_EQ(RunProcess({"/bin/sh", "-c", version}).exit_code, 128 + SIGTERM);
}

TEST_CASE("A training of a model that is stopped goes on to the model of one that was not") {
  const TempDirectory scratch;
  WriteTextFile(scratch / "config.json", R"({
    "task": {"type": "ImageMLP", "image_size": 8, "hidden": [4], "batch_size": 20,
             "data": "glyphs", "augment": {"type": "CTAugment"}},
    "optimizer": {"type": "Adam", "learning_rate": 0.01}, "workers": 2, "eval_every": 100})");
  const auto train = [&](const char* out, int64_t steps) {
    return fmt::format("exec '{}' train '{}' --out '{}' --threads 2 --seed 5 --steps {}",
                       BuildPath("lopt"), scratch / "config.json", scratch / out, steps);
  };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(signal);
    const FinishedProcess stopped = RunAndSend(signal, train("run", 1000000000), "steps/s");
    CHECK_EQ(stopped.exit_code, 75);
    CHECK(stopped.errors.find("Stopping after this update; once more to stop at once.") !=
          std::string::npos);
    CHECK(stopped.output.ends_with("To go on:\n  lopt train --resume --out " +
                                   ShellQuoted(scratch / "run") + " --threads 2\n"));
    CHECK_EQ(Status(scratch), "interrupted");
    const int64_t updates = RunDirectory(scratch / "run").ReadManifest().updates;
    CHECK_EQ(CheckpointStore(scratch / "run/checkpoints", {}).Steps().back(), updates);
    CHECK_EQ(RunProcess({"/bin/sh", "-c", train("run", updates + 3) + " --resume"}).exit_code, 0);
    CHECK_EQ(RunProcess({"/bin/sh", "-c", train("whole", updates + 3)}).exit_code, 0);
    for (const char* file : {"/model.safetensors", "/metrics.jsonl"}) {
      CHECK_EQ(ReadTextFile((scratch / "run") + file), ReadTextFile((scratch / "whole") + file));
    }
    for (const char* run : {"run", "whole"}) std::filesystem::remove_all(scratch / run);
  }
}

TEST_CASE("Under nohup a run goes on when its terminal's session ends") {
  const TempDirectory scratch;
  CHECK_EQ(RunAndSend(SIGHUP, "trap '' HUP; exec " + Train(scratch, 20)).exit_code, 0);
  CHECK_EQ(Status(scratch), "finished");
}

TEST_CASE("Output that nobody reads any more is a stop that saves the run") {
  const TempDirectory scratch;
  RunProcess({"/bin/sh", "-c",
              fmt::format("{{ {}; echo $? > '{}'; }} 2>&1 | head -n 1", Train(scratch, 1000000000),
                          scratch / "code")});
  CHECK_EQ(ReadTextFile(scratch / "code"), "75\n");
  CHECK_EQ(Status(scratch), "interrupted");
}

TEST_CASE("Where output is no stop a run goes on when nobody reads it any more") {
  const TempDirectory scratch;
  RunProcess({"/bin/sh", "-c",
              fmt::format("{{ LOPT_OUTPUT_IS_NO_STOP=1 {}; echo $? > '{}'; }} 2>&1 | head -n 1",
                          Train(scratch, 500), scratch / "code")});
  CHECK_EQ(ReadTextFile(scratch / "code"), "0\n");
  CHECK_EQ(Status(scratch), "finished");
}

}  // namespace
}  // namespace lopt
