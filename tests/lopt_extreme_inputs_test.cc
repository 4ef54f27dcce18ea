// Numbers of any size in gradients and params: what float32 cannot square.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/finite.h"
#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/hand_designed.h"
#include "lopt/lopt/rules/learnable.h"
#include "tests/error_of.h"
#include "tests/farthest.h"
#include "tests/on_every_isa.h"
#include "tests/optimizer_examples.h"
#include "tests/reference/optimizers.h"

namespace lopt {
namespace {

constexpr int64_t kUpdates = 2;

// Optimizers by their configs: with every option of a step, and those that are designed by hand.
std::vector<std::pair<std::string, std::string>> Optimizers() {
  auto optimizers = OptimizerExamples();
  for (const char* by_hand :
       {R"({"type": "Nesterov"})", R"({"type": "NAdamW"})", R"({"type": "Lion"})",
        R"({"type": "ScheduleFreeAdamW"})", R"({"type": "Muon"})",
        R"({"type": "SOAP", "frequency": 1})", R"({"type": "Adam"})", R"({"type": "AdamW"})"}) {
    optimizers.emplace_back(by_hand, by_hand);
  }
  return optimizers;
}

Layout Shapes() {
  return Layout({{"r0", {}},
                 {"v1", {1}},
                 {"v17", {17}},
                 {"v300", {300}},
                 {"one", {1, 1}},
                 {"r2", {3, 5}},
                 {"tall", {41, 1}},
                 {"square", {16, 16}},
                 {"down", {40, 10}},
                 {"r3", {7, 5, 2}},
                 {"conv", {3, 3, 5, 7}}});
}

struct Training {
  std::vector<float> params;
  std::vector<float> state;
};

// A few updates of params of a size with gradients of another, each number up to that. It ends with
// an update that makes params not finite.
Training Trained(const LearnedOptimizer& optimizer, const Layout& layout, float of_params,
                 float of_gradients) {
  const Eigen::VectorXf theta = optimizer.InitTheta(KeyFromSeed(1));
  const auto rule = optimizer.Bind(layout, AsSpan(theta));
  Training run{.params = std::vector<float>(static_cast<size_t>(layout.size())),
               .state = std::vector<float>(static_cast<size_t>(rule->state_layout().size()))};
  const auto draw = [](uint64_t seed, float size, std::span<float> to) {
    Uniform(KeyFromSeed(seed), to);
    for (float& x : to) x = size * (2 * x - 1);
  };
  draw(2, of_params, run.params);
  rule->InitState({.num_steps = 100}, run.params, run.state);
  std::vector<float> gradient(run.params.size());
  Workspace scratch;
  for (int64_t step = 0; step < kUpdates && AllFinite(run.params); ++step) {
    draw(3 + static_cast<uint64_t>(step), of_gradients, gradient);
    rule->Update({.step = step, .num_steps = 100, .loss = 1}, gradient, run.params, run.state,
                 scratch);
  }
  return run;
}

void StaysFinite(const std::vector<float>& sizes) {
  for (const auto& [name, config] : Optimizers()) {
    for (const bool reference : {false, true}) {
      CAPTURE(name);
      CAPTURE(reference);
      const Config of = Config::Parse(config, "test");
      const auto optimizer = reference ? MakeReferenceOptimizer(of) : OptimizerRegistry().Make(of);
      for (const float size : sizes) {
        for (const bool params : {false, true}) {
          CAPTURE(size);
          CAPTURE(params);
          const auto check = [&] {
            const Training run =
                Trained(*optimizer, Shapes(), params ? size : 1, params ? 1 : size);
            // A step by SGD of its learning rate, 100, is beyond float32 then.
            const bool averaged = name == "UnknownLength";  // the params, in the state
            const bool large = name == "LearnedScheduler-recommended" ||
                               name == "LearnedScheduler-MatricesAndVectors" || averaged;
            const bool beyond = size == 1e38f && !params && large;
            CHECK(AllFinite(run.params) == !beyond);
            CHECK(AllFinite(run.state) == !(beyond && averaged));
          };
          if (reference) {
            check();
          } else {
            OnEveryIsa(check);
          }
        }
      }
    }
  }
}

TEST_CASE("Params and states stay finite under finite gradients and params of six sizes") {
  StaysFinite({1e-38f, 1e-20f, 1e10f, 1e18f, 1e20f, 1e38f});
}

TEST_CASE("Params and states stay finite under finite gradients and params of any size" *
          doctest::test_suite("nightly")) {
  StaysFinite({1e-30f, 1e-10f, 1e6f, 1e14f, 1e25f, 1e30f});
}

// The step of a param of 0 in its first update, with a gradient of 1.
float FirstStep(const LearnedOptimizer& optimizer, const Eigen::VectorXf& theta) {
  const auto rule = optimizer.Bind(Layout({{"p", {1}}}), AsSpan(theta));
  float param = 0;
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  rule->InitState({.num_steps = 2}, {&param, 1}, state);
  const float gradient = 1;
  Workspace scratch;
  rule->Update({.step = 0, .num_steps = 2}, {&gradient, 1}, {&param, 1}, state, scratch);
  return -param;
}

TEST_CASE("A decay that float32 rounds to 1 leaves the first step as large as ever") {
  for (const std::string type :
       {"LearnableAdam", "NAdamW", "Lion", "ScheduleFreeAdamW", "Adam", "AdamW"}) {
    CAPTURE(type);
    const auto first_step = [&](const std::string& options) {
      const auto optimizer = OptimizerRegistry().Make(Config::Parse(
          R"({"type": ")" + type + R"(", "learning_rate": 0.125)" + options + "}", "test"));
      return FirstStep(*optimizer, optimizer->InitTheta(Key{}));
    };
    const float wanted = first_step("");
    CHECK(first_step(R"(, "beta2": 0.99999999)") == doctest::Approx(wanted).epsilon(1e-4));
    CHECK(first_step(R"(, "beta1": 0.99999999)") > 0);
  }
}

TEST_CASE("LearnableAdam's decays stay from 0 to below 1, whatever theta is") {
  const auto adam = OptimizerRegistry().Make(Config::Parse(R"({"type": "LearnableAdam"})", "test"));
  const Eigen::VectorXf theta = adam->InitTheta(Key{});
  const float wanted = FirstStep(*adam, theta);
  for (const float log_of_rest : {-100.0f, -20.0f, 1e-3f, 5.0f, 100.0f}) {
    CAPTURE(log_of_rest);
    Eigen::VectorXf moved = theta;
    moved[1] = moved[2] = log_of_rest;
    CHECK(FirstStep(*adam, moved) == doctest::Approx(wanted).epsilon(1e-4));
  }
}

TEST_CASE("An epsilon is no zero in float32: a param without gradients stays where it was") {
  for (const std::string options :
       {R"("LearnableAdam", "epsilon_root": 0)", R"("NAdamW")", R"("ScheduleFreeAdamW")",
        R"("Prodigy")", R"("Prodigy", "initial_distance": 1e-37)", R"("SOAP")"}) {
    CAPTURE(options);
    const auto optimizer = OptimizerRegistry().Make(
        Config::Parse(R"({"epsilon": 1e-37, "type": )" + options + "}", "test"));
    const Eigen::VectorXf theta = optimizer->InitTheta(Key{});
    const auto rule = optimizer->Bind(Layout({{"p", {2}}}), AsSpan(theta));
    std::vector<float> params = {0, 1};
    std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
    rule->InitState({.num_steps = 3}, params, state);
    const std::vector<float> gradient = {0, 1};
    Workspace scratch;
    for (int64_t step = 0; step < 3; ++step) {
      rule->Update({.step = step, .num_steps = 3}, gradient, params, state, scratch);
    }
    CHECK(params[0] == 0);
    CHECK(AllFinite(params));
  }
  const auto least = [](const std::string& option) {
    return option + " must be at least 1e-37, got 1e-50";
  };
  CHECK(ErrorOf([] { LearnableAdam({.epsilon = 1e-50}); }) == least("LearnableAdam: epsilon"));
  CHECK(ErrorOf([] { NAdamW({.epsilon = 1e-50}); }) == least("NAdamW: epsilon"));
  CHECK(ErrorOf([] { ScheduleFreeAdamW({.epsilon = 1e-50}); }) ==
        least("ScheduleFreeAdamW: epsilon"));
  CHECK(ErrorOf([] { Prodigy({.epsilon = 1e-50}); }) == least("Prodigy: epsilon"));
  CHECK(ErrorOf([] { Prodigy({.initial_distance = 1e-50}); }) ==
        least("Prodigy: initial_distance"));
  CHECK(ErrorOf([] { SOAP({.epsilon = 1e-50}); }) == least("SOAP: epsilon"));
}

std::vector<float> StepsFromZero(const std::string& config, const Shape& shape,
                                 float of_gradients) {
  const auto optimizer = OptimizerRegistry().Make(Config::Parse(config, "test"));
  std::vector<float> steps = Trained(*optimizer, Layout({{"w", shape}}), 0, of_gradients).params;
  return steps;
}

// The largest distance of a from factor b beside the largest of factor b.
double Apart(const std::vector<float>& a, const std::vector<float>& b, double factor) {
  std::vector<double> wanted(b.begin(), b.end());
  for (double& x : wanted) x *= factor;
  return FarthestOfLargest(a, wanted);
}

void CheckOrthogonalSteps(const Shape& shape, const std::vector<float>& sizes) {
  const std::string config = R"({"type": "OrthogonalSteps", "optimizer": {"type": "LearnableSGD",
                                 "learning_rate": 0.01}})";
  CAPTURE(shape[0]);
  const std::vector<float> ordinary = StepsFromZero(config, shape, 1);
  for (const float size : sizes) {
    CAPTURE(size);
    // Singular values near 0 make Newton-Schulz sensitive to the rounding of what it is given.
    OnEveryIsa(
        [&] { CHECK(Apart(StepsFromZero(config, shape, size), ordinary, double{size}) < 1e-3); });
  }
}

TEST_CASE("Orthogonal steps are as large as the gradients, whatever their size") {
  for (const Shape& shape : {Shape{5, 3}, Shape{3, 19}}) {
    CheckOrthogonalSteps(shape, {1e-33f, 1e-20f, 1e14f, 1e20f, 1e38f});
  }
  CheckOrthogonalSteps({512, 512}, {1e-33f, 1e38f});
}

TEST_CASE("Orthogonal steps of a large matrix are as large as the gradients, whatever their size" *
          doctest::test_suite("nightly")) {
  CheckOrthogonalSteps({512, 512}, {1e-20f, 1e14f, 1e20f});
}

TEST_CASE("Steps that gradients give a direction alone do not depend on their size") {
  for (const char* config : {R"({"type": "MLPLOpt", "step_mult": 1})",
                             R"({"type": "MLPLOpt", "step_mult": 1, "relative_step": true})",
                             R"({"type": "LearnableAdam"})", R"({"type": "NAdamW"})",
                             R"({"type": "Celo2", "one_d": "adamw"})"}) {
    for (const Shape& shape : {Shape{}, Shape{17}, Shape{300}}) {
      const std::vector<float> ordinary = StepsFromZero(config, shape, 1e6f);
      for (const float size : {1e12f, 1e18f, 1e25f, 1e32f}) {
        CAPTURE(config);
        CAPTURE(size);
        // Adam's gradients count as at most 1e19, so that of large ones the sign alone remains.
        if (size > 1e19f && std::string(config).find("MLPLOpt") == std::string::npos) continue;
        OnEveryIsa([&] { CHECK(Apart(StepsFromZero(config, shape, size), ordinary, 1) < 1e-3); });
      }
    }
  }
}

TEST_CASE("Adam steps by the signs of gradients beyond what float32 squares") {
  for (const char* config : {R"({"type": "LearnableAdam", "learning_rate": 0.5})",
                             R"({"type": "NAdamW", "learning_rate": 0.5, "beta1": 0})"}) {
    CAPTURE(config);
    const auto optimizer = OptimizerRegistry().Make(Config::Parse(config, "test"));
    const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(1));
    const auto rule = optimizer->Bind(Layout({{"w", {2}}}), AsSpan(theta));
    std::vector<float> params = {0, 0};
    std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
    Workspace scratch;
    rule->Update({.step = 0, .num_steps = 9}, std::vector<float>{1e30f, -1e38f}, params, state,
                 scratch);
    CHECK(params[0] == doctest::Approx(-0.5));
    CHECK(params[1] == doctest::Approx(0.5));
  }
}

}  // namespace
}  // namespace lopt
