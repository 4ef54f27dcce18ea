#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/tasks/quadratic/quadratic.h"

namespace lopt {
namespace {

struct Evaluated {
  float loss;
  std::vector<float> gradient;
};

Evaluated EvaluateOne(const TaskFamily& family, std::span<const float> config,
                      std::span<const float> params, Key key) {
  Evaluated out{0, std::vector<float>(params.size())};
  Workspace scratch;
  TaskEvaluation evaluation;
  evaluation.config = config;
  evaluation.params = params;
  evaluation.keys = {&key, 1};
  evaluation.losses = {&out.loss, 1};
  evaluation.gradients = out.gradient;
  family.Evaluate(evaluation, scratch);
  return out;
}

struct Started {
  std::vector<float> config;
  std::vector<float> params;
};

Started Start(const TaskFamily& family, Key key) {
  Started start{std::vector<float>(family.config_layout().size()),
                std::vector<float>(family.params_layout().size())};
  family.Sample(FoldIn(key, 0), start.config);
  family.Init(start.config, FoldIn(key, 1), start.params, {});
  return start;
}

void CheckFiniteDifferences(const TaskFamily& family) {
  const Key key = KeyFromSeed(5);
  const Started start = Start(family, key);
  const Evaluated at = EvaluateOne(family, start.config, start.params, key);
  constexpr double kStep = 0.01;
  const double rounding = 4e-7 * std::abs(at.loss) / kStep;
  for (size_t i = 0; i < at.gradient.size(); ++i) {
    std::vector<float> up = start.params;
    std::vector<float> down = start.params;
    up[i] += static_cast<float>(kStep);
    down[i] -= static_cast<float>(kStep);
    const double difference =
        (static_cast<double>(EvaluateOne(family, start.config, up, key).loss) -
         EvaluateOne(family, start.config, down, key).loss) /
        (static_cast<double>(up[i]) - down[i]);
    CHECK(std::abs(at.gradient[i] - difference) < 1e-3 * std::abs(difference) + rounding);
  }
}

TEST_CASE("QuadraticTask is the sum of squares, with gradient 2 x") {
  const QuadraticTask task({.dim = 3});
  const std::vector<float> x = {1, -2, 0.5f};
  const Evaluated out = EvaluateOne(task, {}, x, KeyFromSeed(0));
  CHECK(out.loss == 5.25f);
  CHECK(out.gradient == std::vector<float>{2, -4, 1});
  CHECK(task.config_layout().size() == 0);
}

TEST_CASE("FixedDimQuadraticFamily measures the squared distance to its target") {
  const FixedDimQuadraticFamily family({.dim = 2});
  const std::vector<float> target = {1, -1};
  const std::vector<float> x = {3, -1.5f};
  const Evaluated out = EvaluateOne(family, target, x, KeyFromSeed(0));
  CHECK(out.loss == 4.25f);
  CHECK(out.gradient == std::vector<float>{4, -1});
}

TEST_CASE("LogQuadraticTask is the log of the sum of squares") {
  const LogQuadraticTask task({.dim = 2});
  const std::vector<float> x = {3, 4};
  const Evaluated out = EvaluateOne(task, {}, x, KeyFromSeed(0));
  CHECK(out.loss == doctest::Approx(std::log(25.0)));
  CHECK(out.gradient[0] == doctest::Approx(6.0 / 25));
  CHECK(EvaluateOne(task, {}, std::vector<float>{0, 0}, KeyFromSeed(0)).loss == -INFINITY);
}

TEST_CASE("Gradients of the quadratics agree with finite differences") {
  for (const int64_t dim : {1, 7, 8, 10, 33}) {
    CheckFiniteDifferences(QuadraticTask({.dim = dim}));
    CheckFiniteDifferences(FixedDimQuadraticFamily({.dim = dim}));
    CheckFiniteDifferences(NoisyQuadraticFamily({.dim = dim, .cov = 0}));
    CheckFiniteDifferences(LogQuadraticTask({.dim = dim}));
  }
}

TEST_CASE("The mean loss of FixedDimQuadraticFamily at the start is twice its dimension") {
  constexpr int kDraws = 20000;
  const FixedDimQuadraticFamily family({.dim = 10});
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const Key key = FoldIn(KeyFromSeed(1), static_cast<uint64_t>(i));
    const Started start = Start(family, key);
    sum += EvaluateOne(family, start.config, start.params, key).loss;
  }
  // c - x has variance 2, so the loss is 2 chi^2_10, of variance 80.
  CHECK(std::abs(sum / kDraws - 20) < 4 * std::sqrt(80.0 / kDraws));
}

TEST_CASE(
    "NoisyQuadraticFamily draws its scale from 0 to below 25 and adds noise to the gradient only") {
  const NoisyQuadraticFamily quiet({.dim = 50, .cov = 0});
  const NoisyQuadraticFamily noisy({.dim = 50, .cov = 0.5});
  const Started start = Start(noisy, KeyFromSeed(2));
  const std::span<const float> scale = std::span(start.config).last(50);
  CHECK(*std::min_element(scale.begin(), scale.end()) >= 0);
  CHECK(*std::max_element(scale.begin(), scale.end()) < 25);
  CHECK(*std::max_element(scale.begin(), scale.end()) > 20);

  const Key key = KeyFromSeed(3);
  const Evaluated without = EvaluateOne(quiet, start.config, start.params, key);
  const Evaluated with = EvaluateOne(noisy, start.config, start.params, key);
  CHECK(without.loss == with.loss);
  std::vector<float> normal(50);
  Normal(key, normal);
  for (size_t i = 0; i < 50; ++i) {
    const float wanted = without.gradient[i] + 0.5f * normal[i] * start.params[i];
    CHECK(with.gradient[i] == doctest::Approx(wanted).epsilon(1e-5));
  }
  CHECK(EvaluateOne(noisy, start.config, start.params, key).gradient == with.gradient);
  CHECK(EvaluateOne(noisy, start.config, start.params, KeyFromSeed(4)).gradient != with.gradient);
}

TEST_CASE("Several rows give the same numbers as one row after the other") {
  const FixedDimQuadraticFamily family({.dim = 10});
  const Started a = Start(family, KeyFromSeed(7));
  const Started b = Start(family, KeyFromSeed(8));
  std::vector<float> config = a.config;
  std::vector<float> params = a.params;
  config.insert(config.end(), b.config.begin(), b.config.end());
  params.insert(params.end(), b.params.begin(), b.params.end());
  const Key keys[] = {KeyFromSeed(1), KeyFromSeed(2)};
  std::vector<float> losses(2);
  std::vector<float> gradients(20);
  Workspace scratch;
  TaskEvaluation both;
  both.rows = 2;
  both.config = config;
  both.params = params;
  both.keys = keys;
  both.losses = losses;
  both.gradients = gradients;
  family.Evaluate(both, scratch);
  const Evaluated second = EvaluateOne(family, b.config, b.params, keys[1]);
  CHECK(losses[0] == EvaluateOne(family, a.config, a.params, keys[0]).loss);
  CHECK(losses[1] == second.loss);
  CHECK(std::vector<float>(gradients.begin() + 10, gradients.end()) == second.gradient);
}

TEST_CASE("Wrong sizes and examples without a data set are errors") {
  const QuadraticTask task({.dim = 3});
  std::vector<float> x(3);
  std::vector<float> loss(1);
  std::vector<float> short_gradient(2);
  const Key key{};
  const std::vector<int32_t> examples = {0};
  Workspace scratch;
  TaskEvaluation evaluation;
  evaluation.params = x;
  evaluation.keys = {&key, 1};
  evaluation.losses = loss;
  CHECK_NOTHROW(task.Evaluate(evaluation, scratch));
  evaluation.gradients = short_gradient;
  CHECK_THROWS_WITH_AS(task.Evaluate(evaluation, scratch),
                       "TaskFamily: gradients has 2 numbers, wanted 3 or none", Error);
  evaluation.gradients = {};
  evaluation.examples = examples;
  CHECK_THROWS_WITH_AS(task.Evaluate(evaluation, scratch),
                       "TaskFamily: examples are given, but this family has no data set", Error);
  CHECK_THROWS_WITH_AS(task.Init({}, key, short_gradient, {}),
                       "TaskFamily: params has 2 numbers, wanted 3", Error);
  CHECK_THROWS_WITH_AS(QuadraticTask({.dim = 0}),
                       "QuadraticTask: dim must be in [1, 100000000], got 0", Error);
}

TEST_CASE("The names of the splits are read and written") {
  for (const Split split : kSplits) {
    CHECK(ValueOf("split", ToString(split), kSplitNames) == split);
  }
  CHECK_THROWS_WITH_AS(ValueOf("split", "valid", kSplitNames),
                       "There is no split 'valid'; choices: train, inner_valid, outer_valid, test",
                       Error);
}

}  // namespace
}  // namespace lopt
