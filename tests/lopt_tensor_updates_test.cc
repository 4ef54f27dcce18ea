#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "error_of.h"
#include "lopt/base/eigen.h"
#include "lopt/base/key.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/use/tensor_updates.h"

namespace lopt {
namespace {

using Tensors = std::vector<std::vector<float>>;

Tensors Normals(const std::vector<int64_t>& sizes, uint64_t seed) {
  Tensors tensors;
  for (const int64_t size : sizes) {
    tensors.emplace_back(static_cast<size_t>(size));
    Normal(FoldIn(KeyFromSeed(seed), tensors.size()), tensors.back());
  }
  return tensors;
}

std::vector<float> Joined(const Tensors& tensors) {
  std::vector<float> joined;
  for (const std::vector<float>& tensor : tensors) {
    joined.insert(joined.end(), tensor.begin(), tensor.end());
  }
  return joined;
}

Eigen::VectorXf InitTheta(const Config& learned_optimizer) {
  return OptimizerRegistry().Make(learned_optimizer)->InitTheta(KeyFromSeed(0));
}

// The params after `steps` updates by the same gradients.
Tensors Updated(const Config& learned_optimizer, Tensors params, const Tensors& gradients,
                int steps, int threads, const StepOptions& options = {}) {
  TensorRules rules(learned_optimizer, InitTheta(learned_optimizer));
  Tensors states;
  for (const std::vector<float>& p : params) {
    const UpdateRule& rule = rules.For({std::ssize(p)});
    states.emplace_back(static_cast<size_t>(rule.state_layout().size()));
  }
  TensorUpdater updater;
  for (int step = 0; step < steps; ++step) {
    std::vector<TensorUpdate> updates;
    for (size_t i = 0; i < params.size(); ++i) {
      updates.push_back({.rule = &rules.For({std::ssize(params[i])}),
                         .info = {.step = step},
                         .options = options,
                         .gradient = gradients[i],
                         .params = params[i],
                         .state = states[i]});
    }
    updater.Update(updates, threads);
  }
  return params;
}

TEST_CASE("tensors that lie apart get the bits of one rule for all, on any number of threads") {
  const std::vector<int64_t> sizes = {3, 140'001, 48, 0, 70'000};
  const Tensors params = Normals(sizes, 1);
  const Tensors gradients = Normals(sizes, 2);
  const Config config = Config::Parse(R"({"type": "MLPLOpt", "hidden_size": 4})", "test");

  std::vector<std::pair<std::string, Shape>> named;
  for (const int64_t size : sizes) {
    named.emplace_back("tensor" + std::to_string(named.size()), Shape{size});
  }
  const Eigen::VectorXf theta = InitTheta(config);
  const auto rule = OptimizerRegistry().Make(config)->Bind(Layout(named), AsSpan(theta));
  std::vector<float> wanted = Joined(params);
  const std::vector<float> gradient = Joined(gradients);
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  Workspace scratch;
  for (int step = 0; step < 2; ++step) {
    rule->Update({.step = step}, gradient, wanted, state, scratch);
  }

  REQUIRE(wanted != Joined(params));
  for (const int threads : {1, 2, 5}) {
    CHECK(Joined(Updated(config, params, gradients, 2, threads)) == wanted);
  }
}

TEST_CASE("lr multiplies a step, weight decay is decoupled, and zero gradients may be skipped") {
  const Config sgd = Config::Parse(R"({"type": "LearnableSGD", "learning_rate": 0.25})", "test");
  const Tensors params = {{1, 2, 4}};
  const Tensors gradients = {{2, 0, -1}};
  const auto step = [&](const StepOptions& options) {
    return Updated(sgd, params, gradients, 1, 1, options)[0];
  };
  const auto check = [](const std::vector<float>& got, const std::vector<double>& wanted) {
    for (size_t i = 0; i < wanted.size(); ++i) CHECK(std::abs(got[i] - wanted[i]) <= 1e-6);
  };
  check(step({}), {.5, 2, 4.25});
  check(step({.lr = .5}), {.75, 2, 4.125});
  // The step is {-.5, 0, .25}, of a mean square of .3125 / 3.
  const double part = .5 * .1 * std::sqrt(.3125 / 3) / .2;
  check(step({.lr = .5, .weight_decay = .1}), {.75 - part, 2 - 2 * part, 4.125 - 4 * part});
  check(step({.lr = .5, .weight_decay = .1, .skip_zero_gradients = true}),
        {.75 - part, 2, 4.125 - 4 * part});
  check(step({.lr = 0}), {1, 2, 4});
}

TEST_CASE("a tensor that its step would make not finite is left, and the others are stepped") {
  const Config config = Config::Parse(R"({"type": "LearnableSGD", "learning_rate": 1e30})", "test");
  TensorRules rules(config, InitTheta(config));
  const UpdateRule& rule = rules.For({2});
  Tensors gradients = {{1, 0}, {1e20f, 0}, {-1, 0}};
  for (const StepOptions& options : {StepOptions{}, StepOptions{.lr = 0.5}}) {
    Tensors params = {{1, 2}, {1, 2}, {1, 2}};
    std::vector<TensorUpdate> updates;
    for (size_t i = 0; i < params.size(); ++i) {
      updates.push_back({.rule = &rule,
                         .info = {},
                         .options = options,
                         .gradient = gradients[i],
                         .params = params[i],
                         .state = {}});
    }
    for (const int threads : {1, 3}) {
      CHECK(TensorUpdater().Update(updates, threads).left == std::vector<int64_t>{1});
    }
    CHECK(params[0][0] < -1e29f);
    CHECK(params[1] == std::vector<float>{1, 2});
    CHECK(params[2][0] > 1e29f);
  }
}

TEST_CASE("arrays with an element that is not finite are found") {
  Tensors arrays = Normals({5, 200'000, 0, 70'000, 9}, 3);
  const auto found = [&](int threads) {
    const std::vector<std::span<const float>> spans(arrays.begin(), arrays.end());
    return TensorUpdater().NotFinite(spans, threads);
  };
  CHECK(found(1).empty());
  arrays[1][199'999] = -std::numeric_limits<float>::infinity();
  arrays[4][0] = std::numeric_limits<float>::quiet_NaN();
  arrays[0][4] = std::numeric_limits<float>::max();
  for (const int threads : {1, 3}) CHECK(found(threads) == std::vector<int64_t>{1, 4});
}

TEST_CASE("an optimizer that sees all tensors, and a theta of another size, are errors") {
  const Config rnn = Config::Parse(R"({"type": "RNNMLPLOpt"})", "test");
  CHECK(ErrorOf([&] { TensorRules(rnn, InitTheta(rnn)); }) ==
        "LearnedOptimizer: a RNNMLPLOpt does not treat each tensor by itself, which this class "
        "needs");
  const Config sgd = Config::Parse(R"({"type": "LearnableSGD"})", "test");
  CHECK(ErrorOf([&] {
          TensorRules(sgd, Eigen::VectorXf::Constant(1, std::numeric_limits<float>::quiet_NaN()));
        }) ==
        "LearnedOptimizer: wanted a theta of finite numbers; theta/log_lr [1] has 1 number that is "
        "not finite, the first is nan at 0");
  CHECK(ErrorOf([&] { TensorRules(sgd, Eigen::VectorXf(2)); }) ==
        "LearnedOptimizer: theta has 2 numbers, a LearnableSGD needs 1");
}

}  // namespace
}  // namespace lopt
