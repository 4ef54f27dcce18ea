#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/key.h"
#include "lopt/base/run_lock.h"
#include "lopt/evaluation/evaluation_config.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tools/distill/distilled.h"
#include "lopt/tools/distill/scheduler_records.h"
#include "lopt/tools/distill/step_formula.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"
#include "tests/text_parts.h"

namespace lopt {
namespace {

// The text in one line.
std::string Flat(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

constexpr const char* kConstant = "constant";
constexpr const char* kCosine = "cosine";

// An untrained scheduler of a wrapped SGD.
ThetaFile Untrained(const std::string& schedule) {
  ThetaFile file;
  file.learned_optimizer = Config::Parse(
      fmt::format(R"({{"type": "LearnedScheduler", "hidden_size": 3, "step_size": 0.15,
                       "weight_decay": 5e-4, "schedule": "{}", "optimizer":
                         {{"type": "LearnableSGD", "learning_rate": 1000}}}})",
                  schedule),
      "test");
  file.theta = OptimizerRegistry().Make(file.learned_optimizer)->InitTheta(KeyFromSeed(1));
  return file;
}

// The same with a network that says these two numbers, whatever it sees.
ThetaFile Saying(double first, double second, const std::string& schedule) {
  ThetaFile file = Untrained(schedule);
  const Layout layout = OptimizerRegistry().Make(file.learned_optimizer)->theta_layout();
  for (const char* name : {"scheduler/out/w", "scheduler/out/b"}) {
    file.theta.segment(layout.Find(name).offset, layout.Find(name).size).setZero();
  }
  const int64_t bias = layout.Find("scheduler/out/b").offset;
  file.theta[bias] = static_cast<float>(first);
  file.theta[bias + 1] = static_cast<float>(second);
  return file;
}

constexpr const char* kMlp =
    R"("task": {"type": "ImageMLP", "image_size": 8, "hidden": [4], "batch_size": 8})";
constexpr const char* kQuadratic = R"("task": {"type": "FixedDimQuadraticFamily", "dim": 5})";

std::string TasksJson(const std::string& tasks, int seeds = 3) {
  return fmt::format(R"({{"name": "test", "seeds": {}, "tasks": {{{}}}}})", seeds, tasks);
}

// An image MLP trained for two lengths.
std::string TwoLengths() {
  return TasksJson(
      fmt::format(R"("short": {{{0}, "steps": [20]}}, "long": {{{0}, "steps": [150]}})", kMlp));
}

EvaluationConfig Tasks(const std::string& json) {
  return ReadEvaluationConfig(Config::Parse(json, "test"));
}

RateSchedule ScheduleNamed(const std::string& name) {
  return name == kConstant ? RateSchedule::kConstant : RateSchedule::kCosine;
}

FittedFormula Fitted(const ThetaFile& file, const std::string& tasks, const std::string& schedule) {
  return FitStepFormula(RecordTrainings(file, Tasks(tasks)), ScheduleNamed(schedule));
}

// Steps, params and theta are float32, of 6e-8; of what is taken away, some 5e-3 of the params,
// that is 1e-5.
void CheckNear(const StepFormula& got, const StepFormula& wanted) {
  CHECK(got.step_size == doctest::Approx(wanted.step_size).epsilon(1e-5));
  CHECK(std::abs(got.length_power - wanted.length_power) < 1e-5);
  CHECK(got.end == doctest::Approx(wanted.end).epsilon(1e-5));
  CHECK(got.vectors == doctest::Approx(wanted.vectors).epsilon(1e-5));
  CHECK(got.weight_decay == doctest::Approx(wanted.weight_decay).epsilon(1e-4));
}

TEST_CASE("A scheduler that is constant gives back the constant") {
  for (const char* schedule : {kConstant, kCosine}) {
    CAPTURE(schedule);
    const FittedFormula fitted =
        Fitted(Saying(std::log(0.5), std::log(3) / 2, schedule), TwoLengths(), schedule);
    CHECK(fitted.not_fitted.empty());
    CHECK(fitted.log_error < 1e-6);
    // 20 and 100 updates of four tensors with three seeds
    CHECK(fitted.records == 3 * 4 * (20 + kRecordedSteps));
    CheckNear(fitted.formula, {.step_size = 0.5 * 0.15, .weight_decay = 3 * 5e-4 / (0.5 * 0.15)});
  }
}

TEST_CASE("A scheduler that follows a formula gives back its five numbers") {
  const StepFormula wanted = {
      .step_size = 0.1, .length_power = 0.3, .end = 1.5, .vectors = 0.1, .weight_decay = 0.03};
  for (const char* schedule : {kConstant, kCosine}) {
    CAPTURE(schedule);
    const ThetaFile file = WithFormula(Untrained(schedule), wanted);
    const FittedFormula fitted = Fitted(file, TwoLengths(), schedule);
    CHECK(fitted.not_fitted.empty());
    CHECK(fitted.log_error < 1e-5);
    CheckNear(fitted.formula, wanted);
  }
}

TEST_CASE("A formula's sizes are those of its text") {
  const StepFormula formula = {
      .step_size = 0.2, .length_power = 0.5, .end = 4, .vectors = 0.25, .weight_decay = 0};
  CHECK(formula.Size(RateSchedule::kConstant, 0, 1000, false) == doctest::Approx(0.2));
  CHECK(formula.Size(RateSchedule::kConstant, 0, 4000, false) == doctest::Approx(0.1));
  CHECK(formula.Size(RateSchedule::kConstant, 500, 1000, false) == doctest::Approx(0.4));
  CHECK(formula.Size(RateSchedule::kCosine, 500, 1000, true) == doctest::Approx(0.05));
}

TEST_CASE("Numbers that the trainings do not determine are those of an untrained scheduler") {
  const StepFormula wanted = {
      .step_size = 0.1, .length_power = 0.3, .end = 1.5, .vectors = 0.1, .weight_decay = 0.03};
  const ThetaFile file = WithFormula(Untrained(kCosine), wanted);
  const FittedFormula one_length =
      Fitted(file, TasksJson(fmt::format(R"("a": {{{}, "steps": [50]}})", kMlp)), kCosine);
  CHECK(one_length.not_fitted == std::vector<std::string>{"length_power"});
  CHECK(one_length.formula.length_power == 0.5);
  CHECK(one_length.formula.vectors == doctest::Approx(0.1).epsilon(1e-5));
  const FittedFormula vectors =
      Fitted(file, TasksJson(fmt::format(R"("a": {{{}, "steps": [60]}})", kQuadratic)), kCosine);
  CHECK(vectors.not_fitted == std::vector<std::string>{"length_power", "vectors"});
  CHECK(vectors.formula.vectors == 1);
  CHECK(vectors.formula.end == doctest::Approx(1.5).epsilon(1e-5));
  // In the trainings that were there it is the same formula.
  for (const int64_t step : {0, 20, 59}) {
    CHECK(vectors.formula.Size(RateSchedule::kCosine, step, 60, true) ==
          doctest::Approx(wanted.Size(RateSchedule::kCosine, step, 60, true)).epsilon(1e-5));
  }
}

TEST_CASE("Tensors are told by their axes and their place") {
  const Layout params({{"in", {3, 4}},
                       {"b", {4}},
                       {"mid", {4, 4}},
                       {"conv", {3, 3, 4, 4}},
                       {"out", {4, 2}},
                       {"s", {}}});
  using Kinds = std::vector<TensorKind>;
  CHECK(KindsOf(params) == Kinds{TensorKind::kFirstMatrix, TensorKind::kVector, TensorKind::kMatrix,
                                 TensorKind::kConvolution, TensorKind::kLastMatrix,
                                 TensorKind::kVector});
  CHECK(KindsOf(Layout({{"w", {3, 4}}})) == Kinds{TensorKind::kLastMatrix});
}

TEST_CASE("Where no step is above 0 there is nothing to fit") {
  CHECK_THROWS_WITH_AS(FitStepFormula({{.num_steps = 10}}, RateSchedule::kCosine),
                       "the trainings made no step above 0, so there is none to fit", Error);
}

TEST_CASE("A curve has the geometric mean and the quartiles of each part of the trainings") {
  std::vector<SchedulerRecord> records;
  for (const double size : {1.0, 2.0, 4.0}) {
    records.push_back({.step = 0, .num_steps = 250, .size = size});
  }
  records.push_back({.step = 249, .num_steps = 250, .size = 8});
  records.push_back({.step = 249, .num_steps = 250, .size = 0});  // no step
  const StepCurve curve = CurveOf(records, 0.5);
  CHECK(curve.mean.front() == doctest::Approx(2 * 0.5));
  CHECK(curve.low.front() == doctest::Approx(std::sqrt(2) * 0.5));
  CHECK(curve.high.front() == doctest::Approx(std::sqrt(8) * 0.5));
  CHECK(curve.mean.back() == doctest::Approx(8 * 0.5));
  CHECK(std::isnan(curve.mean[1]));
  CHECK(std::isnan(curve.low[1]));
}

TEST_CASE("Tasks with two losses above 0 are summed up") {
  Distilled distilled{.tasks = {{.task = "a", .steps = 1, .network = 1, .formula = 2},
                                {.task = "b", .steps = 1, .network = 1, .formula = 4},
                                {.task = "c", .steps = 1, .network = 2, .formula = 1},
                                {.task = "d", .steps = 1, .network = 2},
                                {.task = "e", .steps = 1, .network = 0, .formula = 1}}};
  SumUp(&distilled);
  CHECK(distilled.mean_ratio.value() == doctest::Approx(std::cbrt(4)));
  CHECK(distilled.median_ratio.value() == doctest::Approx(2));
  const std::string text = DistilledText(distilled, {}, RateSchedule::kCosine);
  CHECK(Has(Flat(text),
            "lower on 1 of 5 tasks and higher on 4 (0 seeds each). It is 2 of the network's on the "
            "median task and 1.59 in the geometric mean, without 2 tasks where one of them is 0 or "
            "diverged."));
  CHECK(Has(text, "2    diverged         -\n"));
}

FinishedProcess Distill(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {BuildPath("lopt"), "distill"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProcess(words);
}

TEST_CASE("distill prints and writes the formula, its losses and its curves") {
  const TempDirectory scratch;
  const std::string out = scratch / "out";
  const StepFormula wanted = {
      .step_size = 0.1, .length_power = 0.3, .end = 1.5, .vectors = 0.1, .weight_decay = 0.03};
  WriteThetaFile(scratch / "theta.safetensors", WithFormula(Untrained(kCosine), wanted));
  WriteTextFile(scratch / "tasks.json", TwoLengths());
  const FinishedProcess finished =
      Distill({scratch / "theta.safetensors", "--tasks", scratch / "tasks.json", "--out", out});
  CAPTURE(finished.output);
  CHECK(finished.errors == "");
  CHECK(finished.exit_code == 0);
  CHECK(Has(finished.output, "\n  step_size            0.1  first steps of matrices"));
  CHECK(Has(finished.output, "\nformula: vectors "));
  CHECK_FALSE(Has(finished.output, "not fitted"));
  std::istringstream lines(finished.output);
  std::string line;
  std::getline(lines, line);  // it has paths
  while (std::getline(lines, line) && !line.starts_with("Curves: ")) CHECK(line.size() <= 80);

  const auto json = nlohmann::json::parse(ReadTextFile(out + "/formula.json"));
  CHECK(json["format"] == "lopt distill 1");
  CHECK(json["seeds"] == 3);
  CHECK(json["formula"]["vectors"].get<double>() == doctest::Approx(0.1).epsilon(1e-5));
  REQUIRE(json["tasks"].size() == 2);
  CHECK(json["tasks"][1]["steps"] == 150);
  // The network is the formula, in other bits.
  CHECK(json["mean_ratio"].get<double>() == doctest::Approx(1).epsilon(1e-3));
  const ThetaFile written = ReadThetaFile(out + "/formula.safetensors");
  CHECK(written.learned_optimizer.Type() == "LearnedScheduler");
  CheckNear(Fitted(written, TwoLengths(), kCosine).formula, wanted);
  const std::string page = ReadTextFile(out + "/steps.html");
  for (const char* part : {"first matrix", "last matrix", "vector", "150 steps", "</svg>"}) {
    CHECK(Has(page, part));
  }
  CHECK_FALSE(Has(page, "hidden matrix"));
}

TEST_CASE("distill says where the formula loses, and takes tasks by their names") {
  const TempDirectory scratch;
  WriteTextFile(scratch / "tasks.json",
                TasksJson(fmt::format(R"("bowl": {{{1}, "steps": [150, 300]}},
                                         "mlp": {{{0}, "steps": [300]}}, "other": {{{0}}})",
                                      kMlp, kQuadratic)));
  const FinishedProcess finished =
      Distill({"recommended", "--tasks", scratch / "tasks.json", "--task", "mlp", "--task", "bowl",
               "--seeds", "4", "--threads", "1", "--out", scratch / "out"});
  CAPTURE(finished.output);
  REQUIRE(finished.exit_code == 0);
  const auto json = nlohmann::json::parse(ReadTextFile(scratch / "out/formula.json"));
  REQUIRE(json["tasks"].size() == 2);
  CHECK(json["tasks"][0]["steps"] == 300);
  CHECK(json["seeds"] == 4);
  CHECK(json["not_fitted"] == nlohmann::json({"length_power"}));
  // As gradients vanish, so do the network's steps; the formula does not see them.
  const double network = json["tasks"][0]["network"];
  const double formula = json["tasks"][0]["formula"];
  CHECK(formula > 1e3 * network);
  CHECK(Has(Flat(finished.output), "lower on 0 of 2 tasks and higher on 2 (4 seeds each)."));
  CHECK(Has(finished.output, "steps shrink with the length to this power; not fitted\n"));
  CHECK_FALSE(Has(finished.output, "other"));
}

TEST_CASE("Thetas of two runs are distilled to two directories") {
  const TempDirectory scratch;
  WriteTextFile(scratch / "tasks.json",
                TasksJson(fmt::format(R"("bowl": {{{}, "steps": [20]}})", kQuadratic), 1));
  for (const char* run : {"a", "b"}) {
    MakeDirectories(scratch / run);
    WriteThetaFile(scratch / run + "/theta.safetensors", Untrained(kCosine));
    const FinishedProcess finished = RunProcess(
        {"/bin/sh", "-c",
         fmt::format("cd '{}/{}' && '{}' distill theta.safetensors --tasks ../tasks.json",
                     scratch.path(), run, BuildPath("lopt"))});
    CAPTURE(finished.errors);
    CHECK(finished.exit_code == 0);
    for (const char* file : {"formula.safetensors", "formula.json", "steps.html"}) {
      CAPTURE(file);
      CHECK(Exists(fmt::format("{0}/{1}/runs/distill-{1}/{2}", scratch.path(), run, file)));
    }
  }
}

TEST_CASE("A directory that distill writes to is refused to a second one") {
  const TempDirectory scratch;
  WriteTextFile(scratch / "formula.json", "earlier");
  const RunLock lock(scratch.path(), "distill");
  const FinishedProcess finished = Distill({"fast", "--preset", "smoke", "--out", scratch.path()});
  CHECK(finished.exit_code == 1);
  CHECK(Has(finished.errors, scratch.path() + " is in use: process "));
  CHECK(ReadTextFile(scratch / "formula.json") == "earlier");
}

TEST_CASE("distill replaces an earlier formula only where it is told to, and nothing else") {
  const TempDirectory scratch;
  WriteTextFile(scratch / "tasks.json",
                TasksJson(fmt::format(R"("bowl": {{{}, "steps": [20]}})", kQuadratic), 1));
  const std::string out = scratch / "out";
  const auto errors = [&](const char* theta, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {theta, "--tasks", scratch / "tasks.json", "--out", out};
    words.insert(words.end(), more.begin(), more.end());
    return Distill(words).errors;
  };
  CHECK(errors("recommended") == "");
  const std::string first = ReadTextFile(out + "/formula.json");
  CHECK(errors("fast") == "lopt: " + out +
                              " holds a formula already: replace it (--overwrite) or choose "
                              "another directory (--out)\n");
  CHECK(ReadTextFile(out + "/formula.json") == first);
  CHECK(errors("fast", {"--overwrite"}) == "");
  CHECK(Has(ReadTextFile(out + "/formula.json"), "fast.safetensors"));

  WriteTextFile(out + "/formula.json", "{}");
  CHECK(errors("fast", {"--overwrite"}) ==
        "lopt: " + out +
            " holds no formula of lopt distill, but something called formula.json, which would be "
            "replaced: choose another directory (--out)\n");
  CHECK(ReadTextFile(out + "/formula.json") == "{}");
}

TEST_CASE("What distill cannot do is an error that names it") {
  const TempDirectory scratch;
  const auto error = [](const std::vector<std::string>& arguments, int exit_code) {
    const FinishedProcess finished = Distill(arguments);
    CHECK(finished.exit_code == exit_code);
    return finished.errors;
  };
  CHECK(error({}, 2) == "lopt: The theta file is missing; usage: lopt distill THETA [OPTIONS]\n");
  CHECK(Has(error({"mlp", "--out", scratch / "out"}, 1),
            "mlp.safetensors: lopt distill wants a learned optimizer of type LearnedScheduler, "
            "whose network says how large steps are, as recommended and fast are; this one is of "
            "type MLPLOpt\n"));
  CHECK(
      error({"fast", "--preset", "smoke", "--task", "quadratci"}, 1) ==
      "lopt: There is no task 'quadratci' in 'smoke'; its tasks are image-mlp, quadratic; did you "
      "mean 'quadratic'?\n");
  CHECK(error({"fast", "--preset", "smoke", "--tasks", "x"}, 2) ==
        "lopt: Give --tasks or --preset, not both\n");
  CHECK(Has(error({"fast", "--seeds", "0"}, 1), "seeds must be "));
}

}  // namespace
}  // namespace lopt
