#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/parallel.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/job/updates.h"
#include "lopt/lopt/registry.h"
#include "tests/learner_fakes.h"

namespace lopt {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::shared_ptr<const LearnedOptimizer> SgdOptimizer(const std::string& options = "") {
  return OptimizerRegistry().Make(
      Config::Parse(R"({"type": "LearnableSGD")" + options + "}", "test"));
}

GradientLearner Learner(const std::string& theta_opt,
                        NonFiniteGradient policy = NonFiniteGradient::kSkip) {
  return {SgdOptimizer(R"(, "learning_rate": 1)"),
          Config::Parse(theta_opt, "test"),
          {.non_finite_gradient = policy}};
}

AggregatedGradient Gradient(float value, double loss = 0, int64_t outer_step = 0) {
  return {.outer_step = outer_step,
          .gradient = Eigen::VectorXf::Constant(1, value),
          .mean_loss = loss,
          .counts = {.inner_steps = 4, .non_finite = 1, .episodes_ended = 0},
          .estimators = {{.mean_loss = loss,
                          .gradient_norm = std::abs(value),
                          .counts = {.inner_steps = 4, .non_finite = 1, .episodes_ended = 0},
                          .metrics = {{"m", loss + 1}}}}};
}

const char* const kSgd3 = R"({"type": "SGD", "learning_rate": 3})";

TEST_CASE("SGD of rate 3 moves log_lr from 0 to -1.5 for the gradients 1 and 0") {
  const GradientLearner learner = Learner(kSgd3);
  const LearnerState start = learner.Init(KeyFromSeed(0));
  CHECK(start.theta[0] == 0);
  CHECK(start.outer_step == 0);
  const std::vector<AggregatedGradient> gradients = {Gradient(1, 2), Gradient(0, 4)};
  UpdateSummary summary;
  const LearnerState state = learner.Update(start, gradients, &summary);
  CHECK(state.theta[0] == -1.5F);
  CHECK(state.outer_step == 1);
  CHECK(state.skipped_updates == 0);
  CHECK(learner.GetStateForWorker(state).theta[0] == -1.5F);
  CHECK(learner.GetStateForWorker(state).outer.outer_step == 1);
  CHECK(summary.outer_step == 0);
  CHECK(summary.mean_loss == 3);
  CHECK(summary.gradient_norm == 0.5);
  CHECK(summary.learning_rate == 3);
  CHECK_FALSE(summary.skipped);
  CHECK(summary.counts == StepCounts{.inner_steps = 8, .non_finite = 2, .episodes_ended = 0});
  CHECK(summary.estimators[0].mean_loss == 3);
  CHECK(summary.estimators[0].gradient_norm == 0.5);
  CHECK(summary.estimators[0].metrics.at("m") == 4);
}

TEST_CASE("A gradient that is not finite is a counted skipped update") {
  const GradientLearner learner = Learner(R"({"type": "Adam"})");
  const LearnerState start = learner.Init(KeyFromSeed(0));
  const std::vector<AggregatedGradient> gradients = {Gradient(1, 2), Gradient(kNan, kNan)};
  UpdateSummary summary;
  const LearnerState state = learner.Update(start, gradients, &summary);
  CHECK(state.theta == start.theta);
  CHECK(state.theta_opt == start.theta_opt);
  CHECK(state.outer_step == 1);
  CHECK(state.skipped_updates == 1);
  CHECK(summary.skipped);
  CHECK(summary.learning_rate == 0);
  CHECK(std::isnan(summary.gradient_norm));
  CHECK(summary.mean_loss == 2);
  const std::vector<AggregatedGradient> good = {Gradient(1, 2, 1)};
  const LearnerState next = learner.Update(state, good);
  CHECK(next.theta[0] == doctest::Approx(-1e-3));
  CHECK(next.skipped_updates == 1);
}

TEST_CASE("Gradients that overflow float32 only in their sum still have a finite mean") {
  const float large = 3e38F;
  const std::vector<AggregatedGradient> gradients = {Gradient(large), Gradient(large)};
  UpdateSummary summary;
  const GradientLearner learner = Learner(R"({"type": "Adam"})");
  learner.Update(learner.Init(KeyFromSeed(0)), gradients, &summary);
  CHECK_FALSE(summary.skipped);
}

TEST_CASE("An update that makes weights that are not finite is an error of that update") {
  const GradientLearner learner = Learner(R"({"type": "SGD", "learning_rate": 1e308})");
  const std::vector<AggregatedGradient> gradients = {Gradient(4)};
  CHECK_THROWS_WITH_AS(
      learner.Update(learner.Init(KeyFromSeed(0)), gradients),
      "the update of outer step 0 made weights that are not finite of finite ones and a finite "
      "gradient (learning_rate 1e+308, norm of the gradient 4): theta/log_lr [1] has 1 number that "
      "is not finite, the first is -inf at 0; a smaller learning_rate of theta_opt or its "
      "clip_by_global_norm keeps them finite",
      Error);
  CHECK_THROWS_WITH_AS(learner.Init(Eigen::VectorXf::Constant(1, kNan)),
                       "GradientLearner: wanted a theta of finite numbers; theta/log_lr [1] has 1 "
                       "number that is not finite, the first is nan at 0",
                       Error);
}

TEST_CASE("Under abort a gradient that is not finite is an error that names the worker") {
  const GradientLearner learner = Learner(kSgd3, NonFiniteGradient::kAbort);
  const std::vector<AggregatedGradient> gradients = {Gradient(1), Gradient(kNan)};
  CHECK_THROWS_WITH_AS(
      learner.Update(learner.Init(KeyFromSeed(0)), gradients),
      "the gradient of outer step 0 is not finite (worker 1) and non_finite_gradient is \"abort\"; "
      "\"skip\" counts such updates and goes on",
      Error);
}

TEST_CASE("An update of some workers names those whose gradients are not finite") {
  const GradientLearner learner = Learner(kSgd3, NonFiniteGradient::kAbort);
  RunState state{.learner = learner.Init(KeyFromSeed(0)), .totals = {{}}, .ledger = Ledger(9, 1)};
  std::vector<WorkerGradient> gradients = {
      {.worker = 3, .first_window = 0, .windows = 1, .gradient = Gradient(1)},
      {.worker = 7, .first_window = 0, .windows = 1, .gradient = Gradient(kNan)}};
  CHECK_THROWS_WITH_AS(
      UpdateTheta(learner, std::move(gradients), {}, &state),
      "the gradient of outer step 0 is not finite (worker 7) and non_finite_gradient is "
      "\"abort\"; \"skip\" counts such updates and goes on",
      Error);
}

TEST_CASE("Gradients of another size, another step or none are errors") {
  const GradientLearner learner = Learner(kSgd3);
  const LearnerState start = learner.Init(KeyFromSeed(0));
  CHECK_THROWS_WITH_AS(learner.Update(start, {}), "GradientLearner: no gradient to update with",
                       Error);
  const std::vector<AggregatedGradient> late = {Gradient(1, 0, 0), Gradient(1, 0, 4)};
  CHECK_THROWS_WITH_AS(learner.Update(start, late),
                       "GradientLearner: gradient 1 is of outer step 4, the learner is at 0",
                       Error);
  std::vector<AggregatedGradient> wide = {Gradient(1)};
  wide[0].gradient = Eigen::VectorXf::Zero(2);
  CHECK_THROWS_WITH_AS(learner.Update(start, wide),
                       "GradientLearner: gradient 0 has 2 numbers, theta has 1", Error);
  CHECK_THROWS_WITH_AS(learner.Init(Eigen::VectorXf::Zero(3)),
                       "GradientLearner: theta has 3 numbers, the optimizer needs 1", Error);
}

// d/dtheta of (theta - 2)^2 / 2 with noise from the key.
std::shared_ptr<const ConfiguredEstimator> NoisyParabola() {
  return Configured([](const WorkerWeights& weights, Key key, int64_t) {
    const float noise = Uniform(key) - 0.5F;
    const float away = weights.theta[0] - 2;
    return GradientEstimate{.gradient = Eigen::VectorXf::Constant(1, away + noise),
                            .mean_loss = 0.5 * away * away,
                            .counts = {},
                            .metrics = {}};
  });
}

TEST_CASE("The learner on one machine finds the minimum, with the same bits on any threads") {
  const auto train = [](int threads, SingleMachineGradientLearner::Options options) {
    const SingleMachineGradientLearner machine(
        Learner(R"({"type": "Adam", "learning_rate": 0.05})"), {NoisyParabola(), NoisyParabola()},
        options);
    SingleMachineGradientLearner::State state;
    ThreadPool pool(threads);
    pool.Run([&] {
      state = machine.Init(KeyFromSeed(5));
      for (int update = 0; update < 300; ++update) {
        machine.Update(KeyFromSeed(5), &state);
      }
    });
    return state;
  };
  const auto one = train(1, {.workers = 3, .windows_per_update = 2});
  CHECK(one.learner.outer_step == 300);
  CHECK(one.workers[2].windows == 600);
  CHECK(one.learner.theta[0] == doctest::Approx(2).epsilon(0.05));
  CHECK(train(4, {.workers = 3, .windows_per_update = 2}).learner.theta == one.learner.theta);
  CHECK(train(1, {.workers = 2, .windows_per_update = 2}).learner.theta != one.learner.theta);
  CHECK(train(1, {.workers = 3, .windows_per_update = 1}).learner.theta != one.learner.theta);
  CHECK_THROWS_WITH_AS(train(1, {.workers = 0}),
                       "SingleMachineGradientLearner: workers must be >= 1, got 0", Error);
  CHECK_THROWS_WITH_AS(train(1, {.windows_per_update = 0}),
                       "SingleMachineGradientLearner: windows_per_update must be >= 1, got 0",
                       Error);
}

}  // namespace
}  // namespace lopt
