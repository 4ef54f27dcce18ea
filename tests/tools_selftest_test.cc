#include <doctest/doctest.h>
#include <fmt/core.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/lopt/registry.h"
#include "lopt/tools/selftest/known.h"
#include "lopt/tools/selftest/trainings.h"
#include "tests/error_of.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

FinishedProcess Selftest(const std::vector<std::string>& options) {
  std::vector<std::string> words = {BuildPath("lopt"), "selftest"};
  words.insert(words.end(), options.begin(), options.end());
  return RunProcess(words);
}

// Its lines that begin so.
std::vector<std::string> LinesOf(const std::string& text, const std::string& start) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(start)) lines.push_back(line);
  }
  return lines;
}

TEST_CASE("selftest passes in the build tree, in 80 columns") {
  const FinishedProcess finished = Selftest({});
  CAPTURE(finished.output);
  CHECK_EQ(finished.exit_code, 0);
  CHECK_EQ(finished.errors, "");
  std::istringstream stream(finished.output);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("lopt ")) continue;  // with the commit
    CHECK_LE(line.size(), 80);
  }
  CHECK_EQ(finished.output.find("FAILED"), std::string::npos);
  for (const std::string& isa : SupportedIsas()) {
    CHECK_GE(LinesOf(finished.output, isa + ": ").size(), 5);
  }
}

TEST_CASE("selftest fails where a trained file is damaged, and names it" *
          doctest::test_suite("nightly")) {
  const TempDirectory directory;
  std::filesystem::copy(SourcePath("trained"), directory.path());
  const std::string path = directory / "mlp.safetensors";
  std::string bytes = ReadTextFile(path);
  bytes.back() = 0x7F;  // the exponent of a weight
  std::ofstream(path, std::ios::binary) << bytes;
  const FinishedProcess finished = Selftest({"--trained", directory.path(), "--mpiexec", "true"});
  CAPTURE(finished.output);
  CHECK_EQ(finished.exit_code, 1);
  for (const std::string& isa : SupportedIsas()) {
    const auto lines = LinesOf(finished.output, isa + ": trained optimizers");
    REQUIRE_EQ(lines.size(), 1);
    CHECK_NE(lines[0].find("FAILED"), std::string::npos);
  }
  CHECK_NE(finished.output.find("mlp.safetensors"), std::string::npos);
}

TEST_CASE("selftest says where it looked for the trained optimizers" *
          doctest::test_suite("nightly")) {
  const TempDirectory directory;
  const FinishedProcess finished = Selftest({"--trained", directory.path(), "--mpiexec", "true"});
  CHECK_EQ(finished.exit_code, 1);
  // Wherever the line is broken.
  const std::string output = std::regex_replace(finished.output, std::regex("\\s+"), " ");
  CHECK_NE(output.find("(--trained names another directory)"), std::string::npos);
}

TEST_CASE("Every optimizer of the program has known steps, and each differs where one does") {
  const auto& known = KnownOptimizerSteps();
  std::vector<std::string> types;
  std::vector<std::string> known_types;
  for (const TypeEntry& entry : OptimizerRegistry().table().entries()) types.push_back(entry.type);
  for (const KnownSteps& steps : known) known_types.emplace_back(steps.type);
  INFO("for a new optimizer: lopt selftest --print-known > tools/selftest/known.inc");
  CHECK_EQ(types, known_types);
  for (KnownSteps steps : known) {
    CAPTURE(steps.type);
    CHECK_NOTHROW(CheckOptimizerSteps(steps));
    for (float& param : steps.params) param += .01F;
    CHECK_THROWS_AS(CheckOptimizerSteps(steps), Error);
  }
}

TEST_CASE("The parameter that is farthest from its known number is named") {
  KnownSteps steps = KnownOptimizerSteps().front();
  steps.params.front() += .01F;
  steps.params[2] += .02F;
  steps.params.back() += .01F;
  std::string error;
  try {
    CheckOptimizerSteps(steps);
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  CHECK(error.starts_with(std::string(steps.type) + ": parameter 2 of 'b' is "));
}

TEST_CASE("The known meta-training is that of every instruction set") {
  for (const std::string& isa : SupportedIsas()) {
    CAPTURE(isa);
    const std::vector<float> weights = SomeWeights(TrainSmoke(isa));
    const std::vector<float>& known = KnownMetaTraining().weights;
    REQUIRE_EQ(weights.size(), known.size());
    for (size_t i = 0; i < known.size(); ++i) {
      CHECK_LE(std::abs(weights[i] - known[i]), kWeightTolerance);
    }
  }
}

TEST_CASE("A job that fails, says nothing of ranks or is not there is an error of the selftest") {
  const TempDirectory directory;
  const auto run = [&](const char* mpiexec) {
    return ErrorOf([&] { TrainOnTwoRanks("scalar", mpiexec, directory / "job", nullptr); });
  };
  CHECK_EQ(run("false"), "'false -n 2' ended with exit code 1: ");
  CHECK_NE(run("true").find("'true -n 2' started no job of two ranks"), std::string::npos);
  CHECK_NE(run("no-such-mpiexec").find("'no-such-mpiexec -n 2' ended with exit code 127: "),
           std::string::npos);
  // The shell's sleep has ended, too.
  const std::atomic<bool> stop = true;
  CHECK_EQ(ErrorOf([&] { TrainOnTwoRanks("scalar", "sleep 1000;", directory / "job", &stop); }),
           "stopped before 'sleep 1000; -n 2' had ended");
}

TEST_CASE("A selftest that is stopped removes its files") {
  const TempDirectory directory;
  bool sent = false;
  const FinishedProcess finished = RunProcess(
      {"/bin/sh", "-c",
       fmt::format("TMPDIR='{}' exec '{}' selftest", directory.path(), BuildPath("lopt"))},
      [&](pid_t child, const std::string& output) {
        if (sent || output.find("files: what is written is read") == std::string::npos) return;
        kill(child, SIGINT);
        sent = true;
      });
  CHECK_EQ(finished.exit_code, 75);
  CHECK_NE(finished.errors.find("Stopping after this check; once more to stop at once."),
           std::string::npos);
  CHECK_NE(finished.output.find("\nStopped after "), std::string::npos);
  CHECK(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace lopt
