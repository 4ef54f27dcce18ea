#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/theta_opt.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

// A run whose learning rate falls along a cosine; `schedule` are more members of it.
MetaTrainConfig Cosine(int64_t meta_steps, const std::string& schedule = "") {
  auto config = ReadOptions<MetaTrainConfig>(Config::Parse(R"({
    "learned_optimizer": {"type": "LearnableSGD"},
    "theta_opt": {"type": "SGD",
                  "schedule": {"type": "WarmupCosine", "warmup_fraction": 0.25)" +
                                                               schedule + R"(}},
    "estimators": [
      {"type": "FullES", "task": {"type": "FixedDimQuadraticFamily", "dim": 2}, "num_tasks": 1,
       "lengths": {"type": "ConstantTruncationSchedule", "total_length": 3}}],
    "checkpoint_seconds": 0, "checkpoint_steps": 2
  })",
                                                           "test"));
  config.meta_steps = meta_steps;
  return config;
}

nlohmann::ordered_json WrittenSchedule(const std::string& directory) {
  return Config::Load(directory + "/config.json").json()["theta_opt"]["schedule"];
}

}  // namespace

TEST_CASE("theta_opt is Adam with learning rate 1e-3 unless it is given") {
  const auto config = ReadOptions<MetaTrainConfig>(
      Config::Parse(R"({"learned_optimizer": {"type": "MLPLOpt"}})", "test"));
  CHECK(config.theta_opt.Dump(-1) == R"({"type":"Adam","learning_rate":0.001})");
}

TEST_CASE("A schedule's length is the run's, and what a run writes says so") {
  const TempDirectory directory;
  RunMetaTraining(Cosine(8), {.out_dir = directory.path()});
  const nlohmann::ordered_json schedule = WrittenSchedule(directory.path());
  CHECK(schedule["total_steps"] == 8);
  CHECK(schedule["warmup_steps"] == 2);
  CHECK(schedule["warmup_fraction"].is_null());
  // Whole after the warm-up, half in the middle of the rest.
  const ThetaOpt opt(Resolved(Cosine(8)).theta_opt, Layout({{"x", {1}}}));
  NamedArrays state = opt.InitState(std::vector<float>(1));
  const auto rate = [&](int64_t updates) {
    state.At("count").As<int64_t>()[0] = updates;
    return opt.LearningRate(state);
  };
  CHECK(rate(1) == doctest::Approx(0.5e-3));
  CHECK(rate(2) == doctest::Approx(1e-3));
  CHECK(rate(5) == doctest::Approx(0.5e-3));
  CHECK(rate(8) == 0);
}

TEST_CASE("A resumed run keeps the schedule that it began with, also for more updates") {
  const TempDirectory whole;
  RunMetaTraining(Cosine(8, R"(, "total_steps": 4)"), {.out_dir = whole.path()});
  const TempDirectory parts;
  RunMetaTraining(Cosine(4), {.out_dir = parts.path()});
  auto config = ReadOptions<MetaTrainConfig>(Config::Load(parts / "config.json"));
  config.meta_steps = 8;
  RunMetaTraining(config, {.out_dir = parts.path(), .resume = true});
  CHECK(WrittenSchedule(parts.path())["total_steps"] == 4);
  CHECK(FinalTheta(parts.path()) == FinalTheta(whole.path()));
  CHECK(MetricsLines(parts.path()) == MetricsLines(whole.path()));
}

TEST_CASE("An open schedule that would have another length at a resume is an Error") {
  const TempDirectory directory;
  RunMetaTraining(Cosine(4), {.out_dir = directory.path()});
  std::string message;
  try {
    RunMetaTraining(Cosine(8), {.out_dir = directory.path(), .resume = true});
  } catch (const Error& error) {
    message = error.what();
  }
  CAPTURE(message);
  CHECK_NE(message.find("theta_opt.schedule.total_steps: 4 in the checkpoint, 8 now"),
           std::string::npos);
}

}  // namespace lopt
