#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/learner/aggregation.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/lopt/registry.h"
#include "tests/error_of.h"
#include "tests/learner_fakes.h"
#include "tests/learner_local_job.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

using Vector = Eigen::VectorXd;

Vector Pair(double x, double y) { return Eigen::Vector2d(x, y); }

TEST_CASE("Gradients are divided by the running mean of their norms, and weighted") {
  NamedArrays state;
  // Norms 5 and 1/2 at first; then 10 and again 1/2.
  const std::vector<EstimatorGradient> first = {{1, Pair(3, 4)}, {3, Pair(0, 0.5)}};
  const Vector one = EqualNormMean(first, &state);
  CHECK(one[0] == doctest::Approx(0.6 / 4).epsilon(1e-14));
  CHECK(one[1] == doctest::Approx((0.8 + 3) / 4).epsilon(1e-14));
  CHECK(RunningNorms(state)[0] == doctest::Approx(5).epsilon(1e-14));
  CHECK(RunningNorms(state)[1] == doctest::Approx(0.5).epsilon(1e-14));

  const std::vector<EstimatorGradient> second = {{1, Pair(6, 8)}, {3, Pair(0.3, 0.4)}};
  const Vector two = EqualNormMean(second, &state);
  // (.99 * 5 + 10) / 1.99, the mean with the weights .99 and 1.
  const double norm = 14.95 / 1.99;
  CHECK(RunningNorms(state)[0] == doctest::Approx(norm).epsilon(1e-13));
  CHECK(RunningNorms(state)[1] == doctest::Approx(0.5).epsilon(1e-13));
  CHECK(two[0] == doctest::Approx((6 / norm + 3 * 0.6) / 4).epsilon(1e-13));
  CHECK(two[1] == doctest::Approx((8 / norm + 3 * 0.8) / 4).epsilon(1e-13));
}

TEST_CASE("The scale of an estimator's loss changes no bit, and of a single one the weight none") {
  NamedArrays state;
  NamedArrays scaled_state;
  NamedArrays single;
  NamedArrays heavy;
  for (int step = 0; step < 20; ++step) {
    const Vector a = Pair(std::sin(step), std::cos(3 * step));
    const Vector b = Pair(step + 1, 0.25 * step);
    const std::vector<EstimatorGradient> plain = {{1, a}, {2, b}};
    const std::vector<EstimatorGradient> scaled = {{1, a}, {2, 1024 * b}};
    CHECK(EqualNormMean(plain, &state) == EqualNormMean(scaled, &scaled_state));
    const std::vector<EstimatorGradient> alone = {{1, b}};
    const std::vector<EstimatorGradient> alone_heavy = {{8, b}};
    CHECK(EqualNormMean(alone, &single) == EqualNormMean(alone_heavy, &heavy));
  }
}

TEST_CASE("Zero gradients, absent ones and those that are not finite leave the running norms") {
  NamedArrays state;
  const std::vector<EstimatorGradient> usual = {{1, Pair(3, 4)}, {3, Pair(0, 0.5)}};
  EqualNormMean(usual, &state);
  const NamedArrays before = state;
  // A zero is a part of the mean, what was not run is none.
  const std::vector<EstimatorGradient> zero = {{1, Pair(0, 0)}, {3, Pair(0, 0)}};
  CHECK(EqualNormMean(zero, &state) == Pair(0, 0));
  CHECK(state == before);
  const std::vector<EstimatorGradient> infinite = {{1, Pair(INFINITY, 0)}, {3, {}}};
  CHECK_FALSE(EqualNormMean(infinite, &state).allFinite());
  CHECK(state == before);
  const std::vector<EstimatorGradient> half = {{1, Pair(0, 0)}, {3, Pair(0, 0.5)}};
  CHECK(EqualNormMean(half, &state)[1] == doctest::Approx(0.75));
  const std::vector<EstimatorGradient> absent = {{1, {}}, {3, Pair(0, 0.5)}};
  CHECK(EqualNormMean(absent, &state)[1] == doctest::Approx(1));
  CHECK(RunningNorms(state)[0] == RunningNorms(before)[0]);

  NamedArrays fresh;
  CHECK(EqualNormMean(zero, &fresh) == Pair(0, 0));
  CHECK(RunningNorms(fresh)[0] == 0);
  CHECK(RunningNorms({}).empty());
  const std::vector<EstimatorGradient> one = {{1, Pair(1, 1)}};
  CHECK(ErrorOf([&] { EqualNormMean(one, &state); }) ==
        "array 'sum' must be F64 of shape [1], got F64 of shape [2]");
  const std::vector<EstimatorGradient> none = {{1, {}}, {3, {}}};
  CHECK(ErrorOf([&] { EqualNormMean(none, &fresh); }) ==
        "equal_norm: the update has no gradient of any estimator by itself");
}

GradientLearner Learner() {
  return {OptimizerRegistry().Make(Config::Parse(R"({"type": "LearnableSGD"})", "test")),
          Config::Parse(R"({"type": "SGD", "learning_rate": 1})", "test"),
          {.weighting = Weighting::kEqualNorm}};
}

// A worker's gradients of two estimators, of weights 1 and 3; NaN: not run.
AggregatedGradient Gradient(float a, float b, int64_t outer_step = 0) {
  AggregatedGradient gradient{.outer_step = outer_step, .gradient = Eigen::VectorXf::Zero(1)};
  for (const auto& [value, weight] : {std::pair(a, 1.0), std::pair(b, 3.0)}) {
    EstimatorReport& report = gradient.estimators.emplace_back();
    if (std::isnan(value)) continue;
    report.weight = weight;
    report.gradient = Eigen::VectorXf::Constant(1, value);
  }
  return gradient;
}

TEST_CASE("The norms are those of each estimator's mean over the workers that ran it") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const GradientLearner learner = Learner();
  const LearnerState start = learner.Init(Eigen::VectorXf::Zero(1));
  // Means 4 and -2: each is one step of its sign, (1 - 3) / 4.
  const std::vector<AggregatedGradient> both = {Gradient(6, kNan), Gradient(2, -2)};
  const LearnerState next = learner.Update(start, both);
  CHECK(next.theta[0] == 0.5F);
  CHECK(RunningNorms(next.norms)[0] == doctest::Approx(4));
  CHECK(RunningNorms(next.norms)[1] == doctest::Approx(2));
  // With weights of staleness: (6 + 2 / 4) / 2.
  const LearnerState weighted = learner.UpdateWeighted(start, both, std::vector<double>{1, 0.25});
  CHECK(RunningNorms(weighted.norms)[0] == doctest::Approx(3.25));
  CHECK(RunningNorms(weighted.norms)[1] == doctest::Approx(0.5));
  // An update that is skipped leaves them.
  const std::vector<AggregatedGradient> infinite = {Gradient(INFINITY, 7, 1)};
  const LearnerState skipped = learner.Update(next, infinite);
  CHECK(skipped.skipped_updates == 1);
  CHECK(skipped.norms == next.norms);
  CHECK(skipped.theta == next.theta);

  std::vector<AggregatedGradient> wrong = {Gradient(1, 1)};
  wrong[0].estimators[1].gradient = Eigen::VectorXf::Zero(2);
  CHECK(ErrorOf([&] { learner.Update(start, wrong); }) ==
        "GradientLearner: that of estimator 1 of gradient 0 has 2 numbers, theta has 1");
}

TEST_CASE("A learner on one machine follows the equal norms, and fixed weights send no more") {
  for (const Weighting weighting : {Weighting::kFixed, Weighting::kEqualNorm}) {
    const SingleMachineGradientLearner machine(
        {OptimizerRegistry().Make(Config::Parse(R"({"type": "LearnableSGD"})", "test")),
         Config::Parse(R"({"type": "SGD", "learning_rate": 1})", "test"),
         {.weighting = weighting}},
        {Always(3000, 1), Always(-1, 1)}, {.workers = 2});
    auto state = machine.Init(KeyFromSeed(0), Eigen::VectorXf::Zero(1));
    machine.Update(KeyFromSeed(0), &state);
    const bool fixed = weighting == Weighting::kFixed;
    CHECK(state.learner.theta[0] == doctest::Approx(fixed ? -1499.5 : 0));
    CHECK(state.learner.norms.size() == (fixed ? 0 : 2));
  }
}

MetaTrainConfig EqualNorms(int64_t workers, int64_t meta_steps = 20) {
  MetaTrainConfig config = SmallExperiment(workers, meta_steps);
  config.weighting = Weighting::kEqualNorm;
  return config;
}

TEST_CASE("Equal norms have the same bits on any threads and ranks and after a resume") {
  for (const int64_t per_worker : {0, 2}) {
    CAPTURE(per_worker);
    MetaTrainConfig config = EqualNorms(3);
    config.estimators_per_worker = per_worker;
    const TempDirectory whole;
    const MetaTrainResult one = RunMetaTraining(config, {.out_dir = whole.path()});
    CHECK(one.learner.theta.allFinite());
    CHECK(one.learner.norms.At("count").As<int64_t>()[1] == 20);
    CHECK(one.learner.theta != RunMetaTraining(SmallExperiment(3), {}).learner.theta);
    CHECK(RunMetaTraining(config, {.threads = 4}).learner.theta == one.learner.theta);
    CHECK(MetricsLines(whole.path()).find("\"running_norm/1_ImageMLP\":") != std::string::npos);

    const TempDirectory parts;
    MetaTrainConfig first = config;
    first.meta_steps = 9;
    for (const MetaTrainConfig& part : {first, config}) {
      const LocalJob job = RunLocalJob(
          part, 2, {.out_dir = parts.path(), .resume = part.meta_steps == config.meta_steps});
      CHECK(job.errors == std::vector<std::string>(2));
    }
    CHECK(FinalTheta(parts.path()) == FinalTheta(whole.path()));
    CHECK(MetricsLines(parts.path()) == MetricsLines(whole.path()));
    CHECK(CheckpointStore(parts / "checkpoints", {}).ReadNewest()->learner.norms ==
          one.learner.norms);
  }
}

TEST_CASE("Equal norms go with updates that do not wait for all") {
  for (const char* mode : {R"({"type": "Async", "batch_size": 2})",
                           R"({"type": "Sync", "deadline_seconds": 1e-9, "quorum": 1})"}) {
    CAPTURE(mode);
    MetaTrainConfig config = EqualNorms(3, 12);
    config.mode = Config::Parse(mode, "test");
    const TempDirectory directory;
    const LocalJob job = RunLocalJob(config, 3, {.out_dir = directory.path()});
    CHECK(job.errors == std::vector<std::string>(3));
    CHECK(job.result.learner.outer_step == 12);
    CHECK(job.result.learner.norms.At("count").As<int64_t>()[0] == 12);
    CHECK(job.result.learner.theta.allFinite());
    config.meta_steps = 15;
    CHECK(RunMetaTraining(config, {.out_dir = directory.path(), .resume = true})
              .learner.norms.At("count")
              .As<int64_t>()[0] == 15);
  }
}

TEST_CASE("Theta does not depend on the weights' common factor, and the weighting is no free key") {
  MetaTrainConfig config = EqualNorms(1, 4);
  const TempDirectory directory;
  const MetaTrainResult one = RunMetaTraining(config, {.out_dir = directory.path()});
  for (const auto& [e, weight] : {std::pair(0, "4"), std::pair(1, "2"), std::pair(2, "4")}) {
    config.estimators[e] = config.estimators[e].With("weight", weight);
  }
  CHECK(RunMetaTraining(config, {}).learner.theta == one.learner.theta);
  config = SmallExperiment(1, 6);
  CHECK(ErrorOf([&] {
          RunMetaTraining(config, {.out_dir = directory.path(), .resume = true});
        }).find("weighting: \"equal_norm\" in the checkpoint, \"fixed\" now") != std::string::npos);
}

}  // namespace
}  // namespace lopt
