#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lopt/base/file.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"

namespace lopt {

namespace {

// Runs "lopt WORDS" in a shell; the words may redirect its outputs.
FinishedProcess Shell(const std::string& words) {
  return RunProcess({"/bin/sh", "-c", "exec '" + BuildPath("lopt") + "' " + words});
}

const std::string kFull = "standard output cannot be written: No space left on device";

}  // namespace

TEST_CASE("An error whose message cannot be written ends the program with its status") {
  for (const char* lost : {"2>/dev/full", "2>&-", ">/dev/full 2>/dev/full", ">&- 2>&- <&-"}) {
    INFO(lost);
    CHECK(Shell(std::string("no-such-command ") + lost).exit_code == 2);
    CHECK(Shell(std::string("meta-train --no-such-option ") + lost).exit_code == 2);
    CHECK(Shell(std::string("inspect /no/such/file ") + lost).exit_code == 1);
    CHECK(Shell(std::string("eval --theta /no/such/file ") + lost).exit_code == 1);
    CHECK(Shell(std::string("check --task NoSuchTask ") + lost).exit_code == 1);
    CHECK(Shell(std::string("launch ") + lost).exit_code == 2);
  }
}

TEST_CASE("Output that is lost is an error at the end, and says so") {
  const std::vector<std::string> commands = {
      "version",          "describe",
      "describe MLPLOpt", "completion bash",
      "--help",           "meta-train --help",
      "check --list",     "inspect '" + SourcePath("trained/fast.safetensors") + "'"};
  for (const std::string& words : commands) {
    INFO(words);
    const FinishedProcess full = Shell(words + " >/dev/full");
    CHECK(full.exit_code == 1);
    CHECK(full.errors.find(kFull) != std::string::npos);
    const FinishedProcess closed = Shell(words + " >&-");
    CHECK(closed.exit_code == 1);
    CHECK(closed.errors.find("standard output cannot be written: Bad file descriptor") !=
          std::string::npos);
  }
}

TEST_CASE("A run whose outputs are lost does all the rest") {
  const TempDirectory directory;
  const std::string run = "meta-train --preset smoke --threads 1 --out ";
  const auto path = [&](const std::string& name) { return directory.path() + "/" + name; };
  const auto theta = [&](const std::string& name) {
    return ReadTextFile(path(name) + "/theta.safetensors");
  };
  const auto files = [&](const std::string& name) {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::recursive_directory_iterator(path(name))) {
      ++count;
    }
    return count;
  };
  REQUIRE(Shell(run + path("whole")).exit_code == 0);
  struct Lost {
    std::string name, words;
    int exit_code;
  };
  for (const Lost& lost :
       {Lost{"out", " >/dev/full", 1}, Lost{"both", " >/dev/full 2>/dev/full", 1},
        Lost{"errors", " 2>/dev/full", 0}, Lost{"closed", " 2>&-", 0},
        Lost{"all", " <&- >&- 2>&-", 1}}) {
    INFO(lost.name);
    CHECK(Shell(run + path(lost.name) + lost.words).exit_code == lost.exit_code);
    // No message has gone into a file that took the number of a closed stream.
    CHECK(theta(lost.name) == theta("whole"));
    CHECK(files(lost.name) == files("whole"));
  }
  WriteTextFile(path("tasks.json"), R"({"tasks": {"bowl": {"task": {"type": "QuadraticTask"}}}})");
  const std::string eval = "eval --baselines none --steps 2 --seeds 1 --tasks " +
                           path("tasks.json") + " --theta " + path("whole") +
                           "/theta.safetensors --out ";
  CHECK(Shell(eval + path("eval") + " >/dev/full 2>&1").exit_code == 1);
  CHECK(std::filesystem::exists(path("eval") + "/table.md"));
}

TEST_CASE("A run says whether there are weights of a lowest held-out loss") {
  const TempDirectory directory;
  const auto run = [&](const std::string& words) {
    return Shell(
               "meta-train --preset smoke --threads 1 --overwrite --set eval_every=10 "
               "--set eval_steps=20 --set eval_seeds=1 --set 'eval_tasks=[{\"type\": "
               "\"QuadraticTask\"}]' --out " +
               directory.path() + "/run " + words)
        .output;
  };
  CHECK(run("").find("The weights of the lowest held-out loss are in ") != std::string::npos);
  // Steps of some 1e30: no loss is finite.
  CHECK(run("--set learned_optimizer.exp_mult=1e30")
            .find("There are no weights of the lowest held-out loss: none was a finite number\n") !=
        std::string::npos);
}

TEST_CASE("A theta file is the same whether the first process gathers checkpoints or not") {
  const TempDirectory directory;
  const auto theta = [&](const std::string& gather) {
    const std::string out = directory.path() + "/" + gather;
    REQUIRE(Shell("meta-train --preset smoke --threads 1 --set gather_checkpoints=" + gather +
                  " --out " + out)
                .exit_code == 0);
    return ReadTextFile(out + "/theta.safetensors");
  };
  CHECK(theta("true") == theta("false"));
}

TEST_CASE("A limit of the size of files is an error that names the file") {
  const TempDirectory directory;
  const FinishedProcess finished = RunProcess(
      {"/bin/sh", "-c",
       "ulimit -f 1; exec '" + BuildPath("lopt") +
           "' meta-train --preset smoke --threads 1 --out " + directory.path() + "/run"});
  INFO(finished.errors);
  CHECK(finished.exit_code == 1);
  CHECK(finished.errors.find("cannot write " + directory.path() + "/run/") != std::string::npos);
  CHECK(finished.errors.find("File too large") != std::string::npos);
}

TEST_CASE("A reader that has seen enough is no error") {
  const FinishedProcess head = RunProcess(
      {"/bin/sh", "-c", "{ '" + BuildPath("lopt") + "' describe; echo $? >&2; } | head -n 1"});
  CHECK(head.output == "# The config file\n");
  CHECK((head.errors == "0\n" || head.errors == "141\n"));  // 128 + SIGPIPE
}

}  // namespace lopt
