#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "lopt/learner/frozen.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "tests/error_of.h"
#include "tests/learner_local_job.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

const Layout kTheta({{"net/w", {2, 3}}, {"net/b", {3}}, {"net/b2", {1}}, {"scale", {}}});

std::vector<std::string> Names(const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const LayoutEntry& entry : FrozenTensors(kTheta, patterns)) names.push_back(entry.name);
  return names;
}

TEST_CASE("A pattern is a regular expression for the whole name") {
  using Strings = std::vector<std::string>;
  CHECK(Names({}) == Strings{});
  CHECK(Names({"net/b"}) == Strings{"net/b"});
  CHECK(Names({"net/b.?"}) == Strings{"net/b", "net/b2"});
  CHECK(Names({"scale", ".*/w"}) == Strings{"net/w", "scale"});
  CHECK(Names({"net/.*", "net/w"}) == Strings{"net/w", "net/b", "net/b2"});
}

TEST_CASE("Patterns that freeze nothing or everything are errors that list the names") {
  const std::string names = "the names are: net/w, net/b, net/b2, scale";
  CHECK(ErrorOf([] {
          Names({"net/b", "net"});
        }) == "frozen: no tensor of theta has a name that 'net' matches; " + names);
  CHECK(ErrorOf([] { Names({""}); }) ==
        "frozen: no tensor of theta has a name that '' matches; " + names);
  CHECK(ErrorOf([] {
          Names({"net/.*", "s.*"});
        }) ==
        "frozen: 'net/.*', 's.*' match all tensors of theta, so that there is nothing to train; " +
            names);
  CHECK(ErrorOf([] { Names({"*"}); }).starts_with("frozen: '*' is not a regular expression: "));
}

// LearnableAdam has four tensors of one number: log_lr, one_minus_beta1, one_minus_beta2 and
// log_epsilon.
GradientLearner Learner(const std::string& theta_opt, const std::vector<std::string>& frozen) {
  return {OptimizerRegistry().Make(Config::Parse(R"({"type": "LearnableAdam"})", "test")),
          Config::Parse(theta_opt, "test"),
          {.frozen = frozen}};
}

AggregatedGradient Gradient(const Eigen::Vector4f& gradient, int64_t outer_step) {
  return {.outer_step = outer_step, .gradient = gradient, .estimators = {{}}};
}

TEST_CASE("Frozen tensors keep their bits under every theta_opt, and the others do not see them") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const char* theta_opt :
       {R"({"type": "AdamW", "weight_decay": 0.5, "clip_by_global_norm": 1})",
        R"({"type": "SGDM", "clip_by_global_norm": 1, "clip_by_value": 0.9})",
        R"({"type": "SGD", "clip_by_global_norm": 1})", R"({"type": "Adam"})",
        R"({"type": "Lion", "weight_decay": 0.2})", R"({"type": "Muon", "weight_decay": 0.2})",
        R"({"type": "NAdamW", "weight_decay": 0.5, "clip_by_global_norm": 1})",
        R"({"type": "SOAP", "weight_decay": 0.5})", R"({"type": "ScheduleFreeAdamW"})"}) {
    CAPTURE(theta_opt);
    const GradientLearner learner = Learner(theta_opt, {"log_lr", ".*beta2"});
    const GradientLearner all = Learner(theta_opt, {});
    LearnerState state = learner.Init(Eigen::Vector4f(-0.0F, 0.3F, 1e-41F, -2));
    LearnerState zeros = all.Init(Eigen::VectorXf(state.theta));
    const Eigen::VectorXf start = state.theta;
    for (int64_t step = 0; step < 5; ++step) {
      const float g = 0.7F * std::cos(static_cast<float>(step));
      const std::vector<AggregatedGradient> wild = {
          Gradient({step == 2 ? kNan : 1e30F, g, -1e3F, 2 - g}, step)};
      state = learner.Update(std::move(state), wild);
      zeros = all.Update(std::move(zeros), std::vector{Gradient({0, g, 0, 2 - g}, step)});
    }
    CHECK(state.skipped_updates == 0);
    for (const int i : {0, 2}) CHECK(std::memcmp(&state.theta[i], &start[i], sizeof(float)) == 0);
    for (const int i : {1, 3}) {
      CHECK(state.theta[i] != start[i]);
      CHECK(state.theta[i] == zeros.theta[i]);
    }
    CHECK(state.theta_opt == zeros.theta_opt);
  }
}

TEST_CASE("Frozen tensors keep their bits in the average that Schedule-Free AdamW keeps") {
  const GradientLearner learner =
      Learner(R"({"type": "ScheduleFreeAdamW", "weight_decay": 0.2, "learning_rate": 0.1})",
              {"log_lr", ".*beta2"});
  LearnerState state = learner.Init(Eigen::Vector4f(-0.0F, 0.3F, 1e-41F, -2));
  const Eigen::VectorXf start = state.theta;
  for (int64_t step = 0; step < 5; ++step) {
    state = learner.Update(std::move(state), std::vector{Gradient({1, 1, 1, 1}, step)});
  }
  const Eigen::VectorXf kept = learner.EvalTheta(state);
  for (const int i : {0, 2}) CHECK(std::memcmp(&kept[i], &start[i], sizeof(float)) == 0);
  for (const int i : {1, 3}) {
    CHECK(kept[i] != start[i]);
    CHECK(kept[i] != state.theta[i]);
  }
}

TEST_CASE("Running norms are those of what is trained") {
  const GradientLearner learner(
      OptimizerRegistry().Make(Config::Parse(R"({"type": "LearnableAdam"})", "test")),
      Config::Parse(R"({"type": "SGD", "learning_rate": 1})", "test"),
      {.weighting = Weighting::kEqualNorm, .frozen = {"log_lr", ".*beta2"}});
  AggregatedGradient gradient = Gradient({9, 3, 9, 4}, 0);
  gradient.estimators[0].weight = 1;
  gradient.estimators[0].gradient = gradient.gradient;
  UpdateSummary summary;
  const LearnerState state =
      learner.Update(learner.Init(Eigen::VectorXf::Zero(4)), std::vector{gradient}, &summary);
  CHECK(RunningNorms(state.norms)[0] == doctest::Approx(5));
  CHECK(summary.gradient_norm == doctest::Approx(1));
  CHECK(state.theta[1] == doctest::Approx(-0.6));
}

// A run that leaves its theta in the file, with tensors of other values than the initial ones.
std::string FirstPhase(const TempDirectory& directory) {
  return RunMetaTraining(SmallExperiment(1, 5), {.out_dir = directory / "first"}).theta_path;
}

TEST_CASE("A second phase trains the other tensors of a first one's theta, on any ranks") {
  const TempDirectory directory;
  const std::string file = FirstPhase(directory);
  const NamedArrays before = FinalTheta(directory / "first");
  MetaTrainConfig config = SmallExperiment(2, 12);
  config.theta_opt = Config::Parse(R"({"type": "AdamW", "weight_decay": 0.1})", "test");
  config.init_theta = file;
  config.frozen = {"mlp/linear_[01]/.*"};
  const TempDirectory whole;
  RunMetaTraining(config, {.out_dir = whole.path()});
  const NamedArrays after = FinalTheta(whole.path());
  for (const auto& [name, array] : after) {
    CAPTURE(name);
    CHECK((array == before.At(name)) == !name.starts_with("mlp/linear_2/"));
  }
  CHECK(Config::Load(whole / "config.json").Dump().find("\"init_theta\": \"" + file + "\"") !=
        std::string::npos);

  // The file is wanted at the start alone.
  const TempDirectory parts;
  MetaTrainConfig first = config;
  first.meta_steps = 5;
  RunLocalJob(first, 2, {.out_dir = parts.path()});
  std::filesystem::remove(file);
  const LocalJob job = RunLocalJob(config, 3, {.out_dir = parts.path(), .resume = true});
  CHECK(job.errors == std::vector<std::string>(3));
  CHECK(FinalTheta(parts.path()) == after);
  CHECK(MetricsLines(parts.path()) == MetricsLines(whole.path()));
  config.init_theta = "";
  CHECK(ErrorOf([&] {
          RunMetaTraining(config, {.out_dir = parts.path(), .resume = true});
        }).find("init_theta: \"" + file + "\" in the checkpoint, \"\" now") != std::string::npos);
}

TEST_CASE("A run can start from a given theta, with a fresh theta_opt") {
  const TempDirectory directory;
  MetaTrainConfig config = SmallExperiment(1, 0);
  config.init_theta = FirstPhase(directory);
  const Eigen::VectorXf theta = ReadThetaFile(config.init_theta).theta;
  CHECK(RunMetaTraining(config, {}).learner.theta == theta);
  config.meta_steps = 3;
  const MetaTrainResult tuned = RunMetaTraining(config, {});
  CHECK(tuned.learner.theta != theta);
  CHECK(tuned.learner.theta_opt.At("count").As<int64_t>()[0] == 3);
}

TEST_CASE(
    "An initial theta that is not there or does not fit is an error before anything is made") {
  const TempDirectory directory;
  MetaTrainConfig config = SmallExperiment(1, 3);
  config.init_theta = directory / "none.safetensors";
  const auto error = [&] {
    return ErrorOf([&] { RunMetaTraining(config, {.out_dir = directory / "run"}); });
  };
  CHECK(error() == "cannot read " + config.init_theta + ": No such file or directory");
  config.init_theta = FirstPhase(directory);
  config.learned_optimizer = config.learned_optimizer.With("hidden_size", "9");
  CHECK(error().starts_with(config.init_theta +
                            ": the file is of another learned optimizer: hidden_size: 8 in the "
                            "file, 9 wanted; theta/mlp/linear_0/b: [8] in the file, [9] wanted; "));
  config = SmallExperiment(1, 3);
  config.frozen = {"mlp/linear_3/w"};
  CHECK(error() ==
        "frozen: no tensor of theta has a name that 'mlp/linear_3/w' matches; the names are: "
        "mlp/linear_0/w, mlp/linear_0/b, mlp/linear_1/w, mlp/linear_1/b, mlp/linear_2/w, "
        "mlp/linear_2/b");
  CHECK_FALSE(std::filesystem::exists(directory / "run"));
}

}  // namespace
}  // namespace lopt
