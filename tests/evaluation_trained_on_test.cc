#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "lopt/evaluation/evaluation_directory.h"
#include "lopt/evaluation/presets.h"
#include "lopt/evaluation/summary.h"
#include "lopt/evaluation/trained_on.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/image/fixed_task.h"
#include "tests/paths.h"

namespace lopt {
namespace {

EvaluationConfig Generalization() {
  return ReadEvaluationConfig(EvaluationPresets().Find("generalization"));
}

std::optional<TaskSteps> TrainedOnBy(const std::string& name, const EvaluationConfig& evaluation) {
  const ThetaFile file = ReadThetaFile(SourcePath("trained/" + name + ".safetensors"));
  return TrainedOn(file.config, file.trained_horizon, evaluation);
}

TEST_CASE("The tasks that a meta-training trains on have the same options, and are not longer") {
  CHECK(TrainedOnBy("recommended", Generalization()) == TaskSteps{{"base", {300}},
                                                                  {"batch-16", {300}},
                                                                  {"batch-512", {300}},
                                                                  {"depth-0", {300}},
                                                                  {"horizon-30", {30}},
                                                                  {"quadratic", {300}}});
  // It is of an earlier version, which had fewer options.
  CHECK(TrainedOnBy("tutorial", Generalization()) ==
        TaskSteps{{"base", {300}}, {"horizon-30", {30}}, {"quadratic", {300}}});
  // Its digits have random units.
  CHECK(TrainedOnBy("celo2", Generalization()) == TaskSteps{});
}

TEST_CASE("Of several numbers of steps those count that some training had") {
  EvaluationConfig config = Generalization();
  config.tasks.resize(1);
  config.steps = {100, 600, 601};
  CHECK(TrainedOnBy("fast", config) == TaskSteps{{"base", {100, 600}}});
}

TEST_CASE("A task counts to the longest of its own trainings, whatever others had") {
  const auto trained_on = [](const std::string& lengths) {
    EvaluationConfig config;
    config.tasks = {{.name = "one", .task = Config::Parse(R"({"type": "QuadraticTask"})", "test")}};
    config.steps = {50, 100, 200, 3000, 5000};
    const std::string training =
        R"({"estimators": [{"task": {"type": "QuadraticTask", "dim": 3}, "lengths":
             {"type": "LogUniformLengthSchedule", "min_length": 30, "max_length": 3000}},
            {"task": {"type": "QuadraticTask"})" +
        lengths + "}]}";
    return TrainedOn(Config::Parse(training, "test"), 3000, config)->at("one");
  };
  const std::vector<int64_t> to_100 = {50, 100};
  CHECK(trained_on(R"(, "lengths": {"type": "LogUniformLengthSchedule", "max_length": 100})") ==
        to_100);
  CHECK(trained_on(R"(, "schedule": {"type": "LogUniformLengthSchedule", "max_length": 100})") ==
        to_100);
  CHECK(trained_on(R"(, "lengths": {"type": "ConstantTruncationSchedule", "total_length": 100})") ==
        to_100);
  const std::vector<int64_t> to_3000 = {50, 100, 200, 3000};
  for (const char* unknown : {"", R"(, "lengths": {"type": "OfAPlugIn", "total_length": 100})",
                              R"(, "lengths": {"type": 1})", R"(, "lengths": "long")"}) {
    CHECK(trained_on(unknown) == to_3000);
  }
}

TEST_CASE("On digits from files an optimizer of drawn digits has trained on no image task") {
  EvaluationConfig config = Generalization();
  config.data_dir = "nowhere";
  CHECK(TrainedOnBy("recommended", config) == TaskSteps{{"quadratic", {300}}});
}

TEST_CASE(
    "A task in random units counts as itself and, where its own are among them, as its task") {
  const auto units = [](const std::string& levels) {
    return R"({"type": "ReparamWeights", "ranges": [0.5, 2], "levels": )" + levels +
           R"(, "task": {"type": "QuadraticTask"}})";
  };
  const auto trained_on = [](const std::string& trained, const std::string& evaluated) {
    EvaluationConfig config;
    config.tasks = {{.name = "one", .task = Config::Parse(evaluated, "test")}};
    config.steps = {100};
    const std::string training = R"({"estimators": [{"task": )" + trained + "}]}";
    return TrainedOn(Config::Parse(training, "test"), 0, config) == TaskSteps{{"one", {100}}};
  };
  const std::string own = R"(["none", "tensor"])", other = R"(["tensor"])";
  CHECK(trained_on(units(own), units(own)));
  CHECK(trained_on(units(own), R"({"type": "QuadraticTask"})"));
  CHECK_FALSE(trained_on(units(other), R"({"type": "QuadraticTask"})"));
  CHECK_FALSE(trained_on(units(own), units(other)));
  // A config from elsewhere.
  CHECK_FALSE(trained_on(R"({"type": 1, "task": {}})", R"({"type": "QuadraticTask"})"));
  CHECK_FALSE(trained_on(R"({"type": "ReparamWeights", "levels": "none", "task": {}})",
                         R"({"type": "QuadraticTask"})"));
}

TEST_CASE("A fixed task is the task that it stands for") {
  const Config fixed = Config::Parse(R"({"type": "FixedTask"})", "test");
  const Config spelled = Config::Parse(
      R"({"hidden": [32], "data": "idx", "image_size": 8, "type": "ImageMLP"})", "test");
  const Config other = Config::Parse(R"({"type": "ImageMLP", "data": "idx"})", "test");
  const Config wide =
      Config::Parse(R"({"type": "ImageMLP", "data": "idx", "hidden": [33]})", "test");
  const auto trained_on = [](const Config& trained, const Config& evaluated) {
    EvaluationConfig config;
    config.tasks = {{.name = "one", .task = evaluated}};
    config.steps = {100};
    const std::string training = R"({"estimators": [{"task": )" + trained.Dump() + "}]}";
    return TrainedOn(Config::Parse(training, "test"), 0, config) == TaskSteps{{"one", {100}}};
  };
  for (const Config& same : {fixed, spelled, other}) {
    CHECK(trained_on(fixed, same));
    CHECK(trained_on(same, fixed));
  }
  CHECK_FALSE(trained_on(fixed, wide));
  CHECK_FALSE(trained_on(wide, fixed));
}

TEST_CASE("Two fixed tasks with one config are as different as their data sets") {
  const auto trained_on = [](const std::string& evaluated) {
    EvaluationConfig config;
    config.tasks = {{.name = "one", .task = Config::Parse(evaluated, "test")}};
    config.steps = {100};
    return TrainedOn(Config::Parse(R"({"estimators": [{"task": {"type": "FixedTask",
                                       "name": "ImageMLPAE_Mnist_128x32x128_bs128"}}]})",
                                   "test"),
                     0, config) == TaskSteps{{"one", {100}}};
  };
  const auto named = [](const std::string& name) {
    return R"({"type": "FixedTask", "name": ")" + name + "\"}";
  };
  const std::string own = named("ImageMLPAE_Mnist_128x32x128_bs128");
  const std::string other = named("ImageMLPAE_FashionMnist_128x32x128_bs128");
  REQUIRE(StandsFor(Config::Parse(own, "test")).Dump() ==
          StandsFor(Config::Parse(other, "test")).Dump());
  CHECK(trained_on(own));
  CHECK_FALSE(trained_on(other));
}

TEST_CASE("A mix of tasks counts as each of them, as far inside as they are") {
  const auto trained_on = [](const std::string& task) {
    EvaluationConfig config;
    config.tasks = {{.name = "one", .task = Config::Parse(task, "test")}};
    config.steps = {100};
    const std::string training = R"({"estimators": [{"task": {"type": "ReparamWeights",
      "ranges": [0.5, 2], "levels": ["none", "tensor"], "task": {"type": "SampledFamily",
        "weights": [1, 3], "tasks": [{"type": "QuadraticTask"}, {"type": "ReparamWeights",
          "ranges": [0.5, 2], "levels": ["none", "tensor"],
          "task": {"type": "QuadraticTask", "dim": 3}}]}}}]})";
    return TrainedOn(Config::Parse(training, "test"), 0, config) == TaskSteps{{"one", {100}}};
  };
  CHECK(trained_on(R"({"type": "QuadraticTask"})"));
  CHECK(trained_on(R"({"type": "QuadraticTask", "dim": 3})"));
  CHECK_FALSE(trained_on(R"({"type": "QuadraticTask", "dim": 4})"));
  // A config from elsewhere.
  const auto of = [](const std::string& task) {
    return TrainedOn(Config::Parse(R"({"estimators": [{"task": )" + task + "}]}", "test"), 0,
                     Generalization());
  };
  CHECK(of(R"({"type": "SampledFamily", "tasks": 3})") == TaskSteps{});
  CHECK(of(R"({"type": "SampledFamily", "tasks": [1, {"type": 2}]})") == TaskSteps{});
}

TEST_CASE("After a first phase, whose tasks nobody knows, an optimizer is marked as such") {
  EvaluatedOptimizers optimizers;
  for (const char* init_theta : {R"("first.safetensors")", R"("")", "3"}) {
    const std::string path = SourcePath("trained/fast.safetensors");
    NamedLearnedOptimizer& learned =
        optimizers.learned.emplace_back(NamedLearnedOptimizerOf("fast", ReadThetaFile(path), path));
    learned.meta_training =
        Config::Parse(std::string(R"({"init_theta": )") + init_theta +
                          R"(, "estimators": [{"task": {"type": "ImageMLP"}}]})",
                      "test");
  }
  optimizers.learned.emplace_back(optimizers.learned[0]).meta_training = Config();
  SetTrainedOn(Generalization(), &optimizers);
  const std::vector<OptimizerInfo> infos = InfoOf(optimizers);
  CHECK(infos[0].trained_before == true);
  CHECK(infos[0].trained_on.has_value());
  for (size_t i = 1; i < infos.size(); ++i) CHECK_FALSE(infos[i].trained_before.has_value());
}

TEST_CASE("Without a config, or with one that names no task, what was trained on is unknown") {
  for (const char* training :
       {"{}", R"({"estimators": 3})", R"({"estimators": [{"task": 1}, 2]})"}) {
    CAPTURE(training);
    const auto trained_on = TrainedOn(Config::Parse(training, "test"), 0, Generalization());
    CHECK(trained_on.value_or(TaskSteps{}).empty());
  }
  CHECK(!TrainedOn(Config(), 0, Generalization()).has_value());
  CHECK(!TrainedOn(Config::Parse("{}", "test"), 0, Generalization()).has_value());
}

TEST_CASE("A start has trained on what its meta-training has") {
  EvaluatedOptimizers optimizers;
  const std::string path = SourcePath("trained/fast.safetensors");
  optimizers.learned.push_back(NamedLearnedOptimizerOf("fast", ReadThetaFile(path), path));
  const NamedLearnedOptimizer fast = optimizers.learned[0];
  optimizers.learned.push_back(StartOf(fast, fast.theta, 0.3));
  SetTrainedOn(Generalization(), &optimizers);
  for (const OptimizerInfo& info : InfoOf(optimizers)) {
    CHECK(info.trained_on == TaskSteps{{"base", {300}}, {"horizon-30", {30}}});
  }
  CHECK(InfoOf(optimizers)[0].start_seed == std::nullopt);
  CHECK(InfoOf(optimizers)[1].start_seed == 0);
  CHECK(InfoOf(optimizers)[1].step_multiplier == 0.3);
}

}  // namespace
}  // namespace lopt
