#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "base/error.h"
#include "lopt/learnable.h"

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
    rule->Update({.step = step}, gradient, x, state, scratch);
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
