#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/lopt/rules/learnable.h"

namespace lopt {
namespace {

// The values of x after each of `steps` updates on x^2 from x = 1.
std::vector<double> TrainOnSquare(const LearnedOptimizer& optimizer, int steps) {
  const Eigen::VectorXf theta = optimizer.InitTheta({});
  const auto rule =
      optimizer.Bind(Layout({{"x", {1}}}), {theta.data(), static_cast<size_t>(theta.size())});
  std::vector<float> x = {1};
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  rule->InitState({}, x, state);
  Workspace scratch;
  std::vector<double> values;
  for (int step = 0; step < steps; ++step) {
    const std::vector<float> gradient = {2 * x[0]};
    rule->Update({.step = step, .num_steps = steps}, gradient, x, state, scratch);
    values.push_back(x[0]);
  }
  return values;
}

TEST_CASE("theta starts at the logarithms of the initial hyperparameters") {
  const Eigen::VectorXf adam = LearnableAdam().InitTheta({});
  const double wanted[] = {-6.9077554, -2.3025851, -6.9077554, -18.420681};
  REQUIRE(adam.size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(std::abs(adam[i] - wanted[i]) <= 2e-6);
  CHECK(std::abs(LearnableSGD({.learning_rate = .5}).InitTheta({})[0] - std::log(.5)) <= 1e-7);
  const Eigen::VectorXf sgdm = LearnableSGDM({.learning_rate = .2, .momentum = .75}).InitTheta({});
  CHECK(std::abs(sgdm[0] - std::log(.2)) <= 2e-7);
  CHECK(std::abs(sgdm[1] - std::log(.25)) <= 2e-7);
  CHECK(LearnableAdam().theta_layout() == Layout({{"log_lr", {1}},
                                                  {"one_minus_beta1", {1}},
                                                  {"one_minus_beta2", {1}},
                                                  {"log_epsilon", {1}}}));
}

TEST_CASE("LearnableSGD multiplies x by 1 - 2 lr on x^2") {
  const std::vector<double> x = TrainOnSquare(LearnableSGD({.learning_rate = .05}), 3);
  CHECK(std::abs(x[0] - .9) <= 1e-7);
  CHECK(std::abs(x[1] - .81) <= 1e-7);
  CHECK(std::abs(x[2] - .729) <= 1e-7);
}

TEST_CASE("LearnableSGDM follows its known trace on x^2 and the losses of the field's notebook") {
  const std::vector<double> x = TrainOnSquare(LearnableSGDM(), 5);
  const double wanted[] = {.98, .9424, .889712, .82449856, .7493164928};
  for (int i = 0; i < 5; ++i) CHECK(std::abs(x[i] - wanted[i]) <= 2e-7);
  // The loss is quadratic in x, so it is the first loss times x^2.
  const double losses[] = {2.5532773, 2.361111, 2.1044798, 1.8072809};
  for (int i = 0; i < 4; ++i) CHECK(std::abs(2.658556 * x[i] * x[i] - losses[i]) <= 2e-6);
}

TEST_CASE("LearnableAdam follows its known trace on x^2") {
  const std::vector<double> x = TrainOnSquare(LearnableAdam(), 5);
  const double wanted[] = {.99900000000625, .9980000262163355, .9970000960688944, .9960002269307704,
                           .9950004360586534};
  for (int i = 0; i < 5; ++i) CHECK(std::abs(x[i] - wanted[i]) <= 1e-7);
}

TEST_CASE("the cosine schedule takes the learning rate from its start to zero over the run") {
  // Factors (1 + cos(pi t / 4)) / 2 of t = 0, 1, 2, 3.
  const double factors[] = {1, (1 + std::sqrt(.5)) / 2, .5, (1 - std::sqrt(.5)) / 2};
  const std::vector<double> sgd =
      TrainOnSquare(LearnableSGD({.learning_rate = .05, .schedule = RateSchedule::kCosine}), 4);
  const std::vector<double> sgdm = TrainOnSquare(
      LearnableSGDM({.learning_rate = .05, .momentum = .5, .schedule = RateSchedule::kCosine}), 4);
  const std::vector<double> adam = TrainOnSquare(
      LearnableAdam(
          {.learning_rate = .1, .beta1 = 0, .epsilon_root = 0, .schedule = RateSchedule::kCosine}),
      4);
  double x = 1, y = 1, z = 1, momentum = 0, second = 0;
  for (int t = 0; t < 4; ++t) {
    CAPTURE(t);
    x -= .05 * factors[t] * 2 * x;
    CHECK(std::abs(sgd[t] - x) <= 1e-7);
    momentum = .5 * momentum + 2 * y;
    y -= .05 * factors[t] * momentum;
    CHECK(std::abs(sgdm[t] - y) <= 2e-7);
    second = .999 * second + .001 * 4 * z * z;
    z -= .1 * factors[t] * 2 * z / (std::sqrt(second / (1 - std::pow(.999, t + 1))) + 1e-8);
    CHECK(std::abs(adam[t] - z) <= 1e-6);
  }
}

TEST_CASE(
    "weight decay shrinks the params by lr weight_decay, with the schedule, before the step") {
  const LearnableAdamOptions plain{.learning_rate = .1, .schedule = RateSchedule::kCosine};
  LearnableAdamOptions decayed = plain;
  decayed.weight_decay = .5;
  const auto step = [](const LearnableAdamOptions& options, int64_t step) {
    const LearnableAdam optimizer(options);
    const Eigen::VectorXf theta = optimizer.InitTheta({});
    const auto rule =
        optimizer.Bind(Layout({{"x", {1}}}), {theta.data(), static_cast<size_t>(theta.size())});
    std::vector<float> x = {2};
    const std::vector<float> gradient = {-1};
    std::vector<float> state(2, 0.0f);
    Workspace scratch;
    rule->Update({.step = step, .num_steps = 4}, gradient, x, state, scratch);
    return double{x[0]};
  };
  CHECK(step(plain, 0) == doctest::Approx(2.1).epsilon(1e-6));
  CHECK(step(decayed, 0) == doctest::Approx(2.1 - .1 * .5 * 2).epsilon(1e-6));
  // Half the learning rate: half the decay, and the rest is the step of a run without decay.
  CHECK(step(plain, 2) - step(decayed, 2) == doctest::Approx(.05 * .5 * 2).epsilon(1e-5));
}

TEST_CASE("defaults have the bits of options that say the same") {
  const std::vector<double> said = TrainOnSquare(
      LearnableAdam({.learning_rate = .03, .schedule = RateSchedule::kConstant, .weight_decay = 0}),
      20);
  CHECK(said == TrainOnSquare(LearnableAdam({.learning_rate = .03}), 20));
  CHECK(said != TrainOnSquare(LearnableAdam({.learning_rate = .03, .weight_decay = .1}), 20));
  CHECK(said != TrainOnSquare(
                    LearnableAdam({.learning_rate = .03, .schedule = RateSchedule::kCosine}), 20));
}

TEST_CASE("the linear schedule takes the learning rate from its start to zero over the run") {
  const std::vector<double> x =
      TrainOnSquare(LearnableSGD({.learning_rate = .05, .schedule = RateSchedule::kLinear}), 4);
  double wanted = 1;
  for (int t = 0; t < 4; ++t) {
    wanted -= .05 * (1 - t / 4.) * 2 * wanted;
    CHECK(std::abs(x[t] - wanted) <= 1e-7);
  }
}

TEST_CASE("a schedule without the run's length, or after its end, is an error") {
  const LearnableSGD optimizer({.schedule = RateSchedule::kCosine});
  CHECK(optimizer.needs_num_steps() == "LearnableSGD with schedule 'cosine'");
  CHECK(LearnableAdam({.schedule = RateSchedule::kLinear}).needs_num_steps() ==
        "LearnableAdam with schedule 'linear'");
  CHECK(LearnableSGDM().needs_num_steps().empty());
  const Eigen::VectorXf theta = optimizer.InitTheta({});
  const auto rule =
      optimizer.Bind(Layout({{"x", {1}}}), {theta.data(), static_cast<size_t>(theta.size())});
  std::vector<float> x = {1};
  Workspace scratch;
  CHECK_THROWS_WITH_AS(
      rule->Update({.step = 3}, x, x, {}, scratch),
      "LearnableSGD with schedule 'cosine' needs the length of the run: step 3 is not one of a run "
      "of 0 steps (StepInfo::num_steps; 0 means that the run's length is not known)",
      Error);
  CHECK_THROWS_WITH_AS(rule->Update({.step = 5, .num_steps = 5}, x, x, {}, scratch),
                       doctest::Contains("step 5 is not one of a run of 5 steps"), Error);
  CHECK(x[0] == 1);
  rule->Update({.step = 4, .num_steps = 5}, x, x, {}, scratch);
}

TEST_CASE("a schedule that does not exist is an error that lists the choices") {
  constexpr RateSchedule kNone{.type = static_cast<RateType>(7)};
  CHECK_THROWS_WITH_AS(LearnableSGD({.schedule = kNone}),
                       doctest::Contains("LearnableSGD: 'schedule.type' is 'number 7'; valid types "
                                         "of schedule: Constant, Linear"),
                       Error);
  CHECK_THROWS_AS(LearnableSGDM({.schedule = kNone}), Error);
  CHECK_THROWS_AS(LearnableAdam({.schedule = kNone}), Error);
}

TEST_CASE("epsilon_root damps small gradients and is an option") {
  const auto first_step = [](const LearnableAdamOptions& options) {
    const LearnableAdam optimizer(options);
    const Eigen::VectorXf theta = optimizer.InitTheta({});
    const auto rule =
        optimizer.Bind(Layout({{"x", {1}}}), {theta.data(), static_cast<size_t>(theta.size())});
    std::vector<float> x = {0};
    const std::vector<float> gradient = {1e-5f};
    std::vector<float> state(2, 0.0f);
    Workspace scratch;
    rule->Update({}, gradient, x, state, scratch);
    return -double{x[0]};
  };
  CHECK(first_step({}) ==
        doctest::Approx(1e-3 * 1e-5 / (std::sqrt(1e-10 + 1e-8) + 1e-8)).epsilon(1e-5));
  CHECK(first_step({.epsilon_root = 0}) == doctest::Approx(1e-3 / 1.001).epsilon(1e-5));
}

TEST_CASE("state layouts name the slots of each tensor") {
  const Layout params({{"w", {2, 3}}, {"b", {}}});
  CHECK(LearnableSGD().StateLayout(params) == Layout());
  CHECK(LearnableSGDM().StateLayout(params) ==
        Layout({{"momentum/w", {2, 3}}, {"momentum/b", {}}}));
  CHECK(LearnableAdam().StateLayout(params) ==
        Layout({{"m/w", {2, 3}}, {"m/b", {}}, {"v/w", {2, 3}}, {"v/b", {}}}));
}

TEST_CASE("wrong sizes of theta, gradient, params and state are errors that say both sizes") {
  const LearnableSGDM optimizer;
  const Layout layout({{"x", {3}}});
  std::vector<float> three(3);
  std::vector<float> two(2);
  CHECK_THROWS_WITH_AS(optimizer.Bind(layout, three),
                       "LearnedOptimizer::Bind: theta has 3 numbers, its layout has 2", Error);
  const auto rule = optimizer.Bind(layout, two);
  Workspace scratch;
  CHECK_THROWS_WITH_AS(rule->Update({}, two, three, three, scratch),
                       "UpdateRule: gradient has 2 numbers, its layout has 3", Error);
  CHECK_THROWS_WITH_AS(rule->Update({}, three, two, three, scratch),
                       "UpdateRule: params has 2 numbers, its layout has 3", Error);
  CHECK_THROWS_WITH_AS(rule->Update({}, three, three, two, scratch),
                       "UpdateRule: state has 2 numbers, its layout has 3", Error);
  CHECK_THROWS_WITH_AS(rule->InitState({}, three, two),
                       "UpdateRule: state has 2 numbers, its layout has 3", Error);
}

}  // namespace
}  // namespace lopt
