#include "evaluation/evaluation_config.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "base/error.h"
#include "evaluation/presets.h"

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

TEST_CASE("Every preset can be read, and an unknown one is answered with their names") {
  for (const Preset& preset : EvaluationPresets().all()) {
    CHECK(ReadEvaluationConfig(preset.config).name == preset.name);
  }
  CHECK_THROWS_WITH_AS(EvaluationPresets().Find("general"),
                       "There is no evaluation preset 'general'; the presets are generalization, "
                       "image-mlp, smoke, tasks; did you mean 'generalization'?",
                       Error);
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
