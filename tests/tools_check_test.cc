#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/options.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/check/check_request.h"
#include "lopt/tools/commands.h"
#include "tests/error_of.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

using Words = std::vector<std::string>;

FinishedProcess Lopt(const Words& arguments) {
  Words words = {BuildPath("lopt"), "check"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProcess(words);
}

Words Lines(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

size_t Longest(const std::string& text) {
  size_t longest = 0;
  for (const std::string& line : Lines(text)) longest = std::max(longest, line.size());
  return longest;
}

// loss = sum x^2, and a gradient that forgets the 2.
class HalfGradient : public QuadraticBase {
 public:
  explicit HalfGradient(const QuadraticOptions& options) : QuadraticBase(options.dim, Layout()) {}

 private:
  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    const int64_t size = params_layout().size();
    for (int64_t row = 0; row < e.rows; ++row) {
      float loss = 0;
      for (int64_t i = 0; i < size; ++i) {
        const float x = e.params[row * size + i];
        loss += x * x;
        if (!e.gradients.empty()) e.gradients[row * size + i] = x;
      }
      e.losses[row] = loss;
    }
  }
};

TEST_CASE("A built-in task and the task trained by an optimizer pass, in lines of 80 columns") {
  const FinishedProcess finished = Lopt({"--task", "QuadraticTask", "--optimizer", "LearnableSGD"});
  CHECK(finished.exit_code == 0);
  CHECK(finished.errors.empty());
  const Words lines = Lines(finished.output);
  const auto has = [&](const std::string& line) {
    INFO(line);
    CHECK(std::ranges::find(lines, line) != lines.end());
  };
  has("learned optimizer LearnableSGD");
  has("task QuadraticTask");
  has("QuadraticTask trained by LearnableSGD");
  has("  passed    allocations");
  has("  passed    layouts        10 params, 0 config, 0 model state");
  CHECK(lines.back().find(" checks passed, 0 failed, 0 left out, on ") != std::string::npos);
  CHECK(Longest(finished.output) <= 80);
}

TEST_CASE("Tasks pass on every instruction set, that of the command line before the config's") {
  const TempDirectory directory;
  const std::string config = directory / "config.json";
  const std::string text = R"({
    "learned_optimizer": {"type": "MLPLOpt", "hidden_size": 4}, "meta_steps": 1, "isa": "scalar",
    "estimators": [
      {"type": "TruncatedPES", "num_tasks": 2, "trunc_length": 5,
       "task": {"type": "ImageMLP", "hidden": [4], "batch_size": 8},
       "lengths": {"type": "ConstantTruncationSchedule"}},
      {"type": "TruncatedES", "num_tasks": 2, "trunc_length": 5, "task": {"type": "QuadraticTask"},
       "lengths": {"type": "ConstantTruncationSchedule"}}]})";
  WriteTextFile(config, text);
  const auto passes_on = [](const std::string& isa, const Words& words) {
    const FinishedProcess finished = Lopt(words);
    INFO(finished.output, finished.errors);
    CHECK(finished.exit_code == 0);
    CHECK(finished.output.find(" 0 failed, 0 left out, on " + isa + " in ") != std::string::npos);
  };
  passes_on("scalar", {config});
  for (const std::string& isa : SupportedIsas()) passes_on(isa, {config, "--isa", isa});
  CHECK(Lopt({"--task", "QuadraticTask", "--isa", "avx9"})
            .errors.starts_with("lopt: this machine has no instruction set 'avx9'"));
}

TEST_CASE("All of a meta-training config is checked, each part once") {
  const FinishedProcess finished = Lopt({"--preset", "smoke"});
  CHECK(finished.exit_code == 0);
  Words headings;
  for (const std::string& line : Lines(finished.output)) {
    if (!line.empty() && line[0] != ' ') headings.push_back(line);
  }
  headings.pop_back();  // the sum
  CHECK(headings ==
        Words{"learned optimizer MLPLOpt", "truncation schedule LogUniformLengthSchedule",
              "task FixedDimQuadraticFamily", "FixedDimQuadraticFamily trained by MLPLOpt",
              "task ImageMLP", "ImageMLP trained by MLPLOpt", "estimator TruncatedPES of MLPLOpt",
              "estimator TruncatedPES of MLPLOpt"});
}

TEST_CASE("What is wrong is shown with the promise and where it stands") {
  TaskRegistry().Add<QuadraticOptions>("HalfGradient", "A wrong gradient.",
                                       [](const QuadraticOptions& options, const TaskResources&) {
                                         return std::make_shared<HalfGradient>(options);
                                       });
  CheckRequest request;
  request.tasks = {Config::Parse(R"({"type": "HalfGradient", "dim": 3})", "test")};
  std::vector<CheckedThing> things;
  RunRequest(request, [&](const CheckedThing& thing) { things.push_back(thing); });
  REQUIRE(things.size() == 2);
  CHECK(Count(things[0].outcomes).failed == 1);
  CHECK(Count(things[1].outcomes).failed == 0);
  const std::string table = OutcomeTable(things[0]);
  CHECK(Longest(table) <= 80);
  INFO(table);
  CHECK(table.find("task HalfGradient\n  {\"type\": \"HalfGradient\", \"dim\": 3}\n") == 0);
  CHECK(
      table.find("  FAILED    gradient       the gradient of all params is 50 % too short, in the\n"
                 "                           median of 15 points where differences of the loss\n"
                 "                           along it were measured; accepted are 0.4") !=
      std::string::npos);
  CHECK(
      table.find("                           The promise, in lopt/tasks/task_family.h: Gradients\n"
                 "                           are those of the loss, as differences of it show;\n"
                 "                           noisy ones in the mean.\n") != std::string::npos);
  CHECK(CheckCommand({"--task", R"({"type": "HalfGradient", "dim": 3})"}) == kExitError);
}

// loss = |x|^2 of the first row; the losses of others are left.
class FirstRow : public QuadraticBase {
 public:
  explicit FirstRow(const QuadraticOptions& options) : QuadraticBase(options.dim, Layout()) {}

 private:
  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    e.losses[0] = 0;
    for (const float x : e.params.first(params_layout().size())) e.losses[0] += x * x;
    for (size_t i = 0; i < e.gradients.size(); ++i) e.gradients[i] = 2 * e.params[i];
  }
};

TEST_CASE("What a wrong task does to its training is left out") {
  TaskRegistry().Add<QuadraticOptions>("FirstRow", "One loss.",
                                       [](const QuadraticOptions& options, const TaskResources&) {
                                         return std::make_shared<FirstRow>(options);
                                       });
  CheckRequest request;
  request.tasks = {Config::Parse(R"({"type": "FirstRow"})", "test")};
  std::vector<CheckedThing> things;
  RunRequest(request, [&](const CheckedThing& thing) { things.push_back(thing); });
  REQUIRE(things.size() == 2);
  CHECK(OutcomeTable(things[0]).find("FAILED    outputs ") != std::string::npos);
  CHECK(OutcomeTable(things[1]).find("left out  windows        needs 'outputs'\n") !=
        std::string::npos);
}

TEST_CASE("A task of a plug-in is checked like any other") {
  const FinishedProcess finished =
      Lopt({"--plugin", BuildPath("tests/plugin_good.so"), "--task", "PluginTask"});
  INFO(finished.output, finished.errors);
  CHECK(finished.exit_code == 0);
  CHECK(finished.output.starts_with("task PluginTask\n"));
}

TEST_CASE("A file with one type's config is read, and wrong words are named with the choices") {
  const TempDirectory directory;
  std::ofstream(directory / "schedule.json") << R"({"type": "NeverEndingTruncationSchedule"})";
  CHECK(Lopt({"--schedule", directory / "schedule.json"}).exit_code == 0);

  const FinishedProcess nothing = Lopt({});
  CHECK(nothing.exit_code == 2);
  CHECK(nothing.errors ==
        "lopt: What to check is missing: a config file, --preset, --task, --optimizer, --schedule "
        "or --estimator; usage: lopt check [CONFIG.json] [OPTIONS]\n");
  CHECK(Lopt({"a.json", "--preset", "smoke"}).errors ==
        "lopt: Give a config file or --preset, not both\n");
  const FinishedProcess unknown = Lopt({"--optimizer", "LearnableSDG"});
  CHECK(unknown.exit_code == 1);
  CHECK(unknown.errors.starts_with(
      "lopt: --optimizer LearnableSDG: there is no such file, and no learned optimizer of that "
      "type; the types are MLPLOpt, "));
  CHECK(unknown.errors.ends_with("; did you mean 'LearnableSGD'?\n"));
}

TEST_CASE("A type in the place of a config file is an error that says the option") {
  for (const auto& [type, option] : {std::pair{"QuadraticTask", "task"},
                                     {"NAdamW", "optimizer"},
                                     {"LogUniformLengthSchedule", "schedule"},
                                     {"TruncatedPES", "estimator"}}) {
    const FinishedProcess finished = Lopt({type});
    CHECK(finished.exit_code == 2);
    CHECK(finished.errors ==
          fmt::format("lopt: {} is a type and no file: lopt check --{} {}\n", type, option, type));
  }
}

TEST_CASE("Every check is listed with its promise and a header that there is") {
  const Words lines = Lines(ListOfChecks());
  int headers = 0;
  for (const std::string& line : lines) {
    CHECK(line.size() <= 80);
    if (!line.ends_with(".h")) continue;
    REQUIRE(line.starts_with("  lopt/"));
    CHECK(std::filesystem::exists(SourcePath(line.substr(7))));
    ++headers;
  }
  CHECK(headers == 5);
  CHECK(Lopt({"--list"}).output == ListOfChecks());
}

}  // namespace
}  // namespace lopt
