#include <doctest/doctest.h>
#include <fmt/core.h>

#include <csignal>
#include <string>

#include "base/file.h"
#include "learner/run/run_directory.h"
#include "tests/learner_runs.h"
#include "tests/process.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

// A shell command that trains in the directory "run" for so many updates.
std::string Train(const TempDirectory& scratch, int64_t steps) {
  WriteTextFile(scratch / "config.json", WriteOptions("", SmallExperiment(1)).Dump());
  return fmt::format(LOPT_BINARY_DIR "/lopt meta-train {} --out {} --threads 1 --steps {}",
                     scratch / "config.json", scratch / "run", steps);
}

// Sends the signal once the first line was written: its handler is there then.
FinishedProcess RunAndSend(int signal, const std::string& command) {
  bool sent = false;
  return RunProcess({"/bin/sh", "-c", command}, [&](pid_t child, const std::string&) {
    if (!sent) kill(child, signal);
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

TEST_CASE("Under nohup a run goes on when its terminal's session ends") {
  const TempDirectory scratch;
  CHECK_EQ(RunAndSend(SIGHUP, "trap '' HUP; exec " + Train(scratch, 20)).exit_code, 0);
  CHECK_EQ(Status(scratch), "finished");
}

TEST_CASE("Output that nobody reads any more is a stop that saves the run") {
  const TempDirectory scratch;
  RunProcess({"/bin/sh", "-c",
              fmt::format("{{ {}; echo $? > {}; }} 2>&1 | head -n 1", Train(scratch, 1000000000),
                          scratch / "code")});
  CHECK_EQ(ReadTextFile(scratch / "code"), "75\n");
  CHECK_EQ(Status(scratch), "interrupted");
}

}  // namespace
}  // namespace lopt
