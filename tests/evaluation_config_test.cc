#include "lopt/evaluation/evaluation_config.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/evaluation/presets.h"
#include "lopt/tasks/registry.h"
#include "tests/error_of.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

EvaluationConfig Parse(const std::string& json) {
  return ReadEvaluationConfig(Config::Parse(json, "test"));
}

TEST_CASE("A config that is written out reads back the same, every key with its value") {
  const EvaluationConfig config = Parse(R"({"steps": [10, 30], "data_dir": "mnist", "tasks": {
    "b": {"task": {"type": "ImageMLP", "hidden": [8]}},
    "a": {"task": {"type": "QuadraticTask"}, "steps": [7]}}})");
  REQUIRE(config.tasks.size() == 2);
  CHECK(config.tasks[0].name == "b");
  CHECK(config.tasks[1].steps == std::vector<int64_t>{7});
  const std::string text = WriteEvaluationConfig(config).Dump();
  CHECK(WriteEvaluationConfig(Parse(text)).Dump() == text);
  for (const char* key : {"seeds", "trials", "tuning_seeds", "image_size", "activation", "dim"}) {
    CHECK(text.find(fmt::format("\"{}\"", key)) != std::string::npos);
  }
}

TEST_CASE("What is wrong in a config is named with its path") {
  const auto message = [](const std::string& json) {
    try {
      Parse(json);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const auto has = [&](const std::string& json, const std::string& part) {
    const std::string text = message(json);
    CAPTURE(json);
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has("{}", "'tasks' is missing");
  has(R"({"tasks": {}})", "'tasks' is empty");
  has(R"({"tasks": [1]})", "'tasks' is [1]; wanted an object");
  has(R"({"tasks": {"a": {"task": {"type": "ImageMLPP"}}}})", "tasks.a.task");
  has(R"({"tasks": {"a": {"task": {"type": "ImageMLP", "width": 3}}}})", "tasks.a.task.width");
  has(R"({"tasks": {"a": {"tasks": 1}}})", "tasks.a.tasks");
  has(R"({"tasks": {"a": {"task": {"type": "QuadraticTask"}, "steps": [3, 2]}}})",
      "'tasks.a.steps' must ascend, got 3, 2");
  has(R"({"steps": [], "tasks": {"a": {"task": {"type": "QuadraticTask"}}}})", "'steps' is empty");
  has(R"({"sed": 1, "tasks": {"a": {"task": {"type": "QuadraticTask"}}}})", "'sed'");
}

TEST_CASE("A config that was set in C++ has tasks, each with a name of its own") {
  EvaluationConfig config;
  CHECK_THROWS_WITH_AS(CheckEvaluationConfig(config),
                       "evaluation: there are no tasks, wanted at least one", Error);
  const Config task = Config::Parse(R"({"type": "QuadraticTask"})", "test");
  config.tasks = {{.name = "a", .task = task}, {.name = "b", .task = task}};
  CHECK_NOTHROW(CheckEvaluationConfig(config));
  config.tasks.push_back({.name = "a", .task = task});
  CHECK_THROWS_WITH_AS(CheckEvaluationConfig(config),
                       "evaluation: two tasks are called 'a'; give one another name", Error);
}

TEST_CASE("A task that is skipped is gone, and there must be one") {
  EvaluationConfig config = Parse(R"({"tasks": {"a": {"task": {"type": "QuadraticTask"}},
    "b": {"task": {"type": "QuadraticTask"}}, "c": {"task": {"type": "QuadraticTask"}}}})");
  SkipTask("b", &config);
  REQUIRE(config.tasks.size() == 2);
  CHECK(config.tasks[0].name == "a");
  CHECK(config.tasks[1].name == "c");
  CHECK_THROWS_WITH_AS(SkipTask("b", &config), "There is no task 'b' to skip; there are a, c",
                       Error);
}

TEST_CASE("Every preset can be read, and an unknown one is answered with their names") {
  for (const Preset& preset : EvaluationPresets().all()) {
    CHECK(ReadEvaluationConfig(preset.config).name == preset.name);
  }
  CHECK_THROWS_WITH_AS(EvaluationPresets().Find("general"),
                       "There is no evaluation preset 'general'; the presets are generalization, "
                       "image-mlp, smoke, tasks, uci-digits; did you mean 'generalization'?",
                       Error);
}

EvaluationConfig PresetNamed(const char* name) {
  return ReadEvaluationConfig(EvaluationPresets().Find(name));
}

TEST_CASE("The preset generalization needs no files, and none of its tasks is there twice") {
  EvaluationConfig config = PresetNamed("generalization");
  const TaskResources no_directory("");
  std::set<std::string> tasks;
  std::vector<int64_t> horizons;
  for (const EvaluationTask& task : config.tasks) {
    CAPTURE(task.name);
    CHECK(TaskRegistry().Make(task.task, no_directory)->params_layout().size() > 0);
    const std::vector<int64_t> steps = task.steps.empty() ? config.steps : task.steps;
    horizons.insert(horizons.end(), steps.begin(), steps.end());
    // With every option, and under one name; without a directory the default data are the glyphs.
    EvaluationConfig alone;
    alone.tasks = {{.name = "", .task = task.task, .steps = steps}};
    std::string text = WriteEvaluationConfig(alone).Dump();
    const std::string by_default = R"("data": "default")";
    if (const size_t at = text.find(by_default); at != std::string::npos) {
      text.replace(at, by_default.size(), R"("data": "glyphs")");
    }
    CHECK(tasks.insert(text).second);
  }
  CHECK(tasks.size() == 22);
  CHECK(std::ranges::max(horizons) == 20000);
  CHECK_FALSE(no_directory.data_dir_used());
}

TEST_CASE("The preset uci-digits reads the digits of a directory, and is an error without one") {
  const TempDirectory directory;
  std::string line;
  for (int pixel = 0; pixel < 64; ++pixel) line += fmt::format("{},", pixel % 17);
  std::string lines;
  for (int image = 0; image < 100; ++image) lines += fmt::format("{}{}\n", line, image % 10);
  WriteTextFile(directory / "train.csv", lines);
  const TaskResources digits(directory.path());
  const TaskResources no_directory("");
  for (const EvaluationTask& task : PresetNamed("uci-digits").tasks) {
    CAPTURE(task.name);
    const auto family = TaskRegistry().Make(task.task, digits);
    CHECK(family->ExampleRange(Split::kTest) == std::pair<int64_t, int64_t>(90, 100));
    CHECK(ErrorOf([&] {
            TaskRegistry().Make(task.task, no_directory);
          }).ends_with("image task: data 'csv' is read from a directory (data_dir, --data-dir)"));
  }
}

TEST_CASE("All that is wrong with an evaluation is one Error") {
  CHECK_THROWS_WITH_AS(
      ReadEvaluationConfig(Config::Parse(R"({"seed": -1, "steps": [2, 1], "tasks": {"a": {"task":
          {"type": "QuadraticTask", "dim": 0}, "step": [3]}, "b": 7}})",
                                         "f")),
      "config: 5 problems\n"
      "  'seed' must be an integer of at least 0, got -1\n"
      "  unknown key 'tasks.a.step'; valid keys: task, steps; did you mean 'steps'?\n"
      "  'tasks.a.task.dim' must be an integer in [1, 100000000], got 0\n"
      "  'tasks.b' must be an object with a \"task\", got 7\n"
      "  'steps' must ascend, got 2, 1",
      Error);
}

}  // namespace
}  // namespace lopt
