#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/compare.h"
#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/scaled_steps.h"
#include "tests/default_optimizer.h"

namespace lopt {
namespace {

const Layout& Params() {
  static const Layout layout({{"w0", {5, 7}}, {"b0", {7}}, {"w1", {3, 3, 2, 4}}, {"scale", {}}});
  return layout;
}

std::unique_ptr<UpdateRule> Bind(const std::string& type, float multiplier) {
  const auto optimizer = OptimizerRegistry().Make(Config::Parse(DefaultsOf(type), "test"));
  const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(1));
  return ScaleSteps(optimizer->Bind(Params(), AsSpan(theta)), multiplier);
}

struct Run {
  std::vector<float> params;
  std::vector<float> state;
};

// From a start of its own, with gradients that are the params as they are and noise.
Run Start(const UpdateRule& rule) {
  Run run{.params = std::vector<float>(static_cast<size_t>(Params().size())),
          .state = std::vector<float>(static_cast<size_t>(rule.state_layout().size()))};
  Normal(KeyFromSeed(2), run.params);
  rule.InitState({.num_steps = 10}, run.params, run.state);
  return run;
}

void Step(const UpdateRule& rule, int64_t step, Run* run) {
  std::vector<float> gradient(run->params.size());
  Normal(FoldIn(KeyFromSeed(3), static_cast<uint64_t>(step)), gradient);
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += run->params[i];
  Workspace scratch;
  rule.Update({.step = step, .num_steps = 10, .loss = 1}, gradient, run->params, run->state,
              scratch);
}

// All but those that cannot be multiplied: they keep an average in their state.
std::vector<std::string> Types() {
  std::vector<std::string> types;
  for (const TypeEntry& entry : OptimizerRegistry().table().entries()) {
    if (entry.type != "ScheduleFreeAdamW" && entry.type != "UnknownLength") {
      types.push_back(entry.type);
    }
  }
  REQUIRE(types.size() >= 16);
  return types;
}

TEST_CASE("A multiplier of 1 gives the bits of the rule, of every type of learned optimizer") {
  for (const std::string& type : Types()) {
    CAPTURE(type);
    const auto optimizer = OptimizerRegistry().Make(Config::Parse(DefaultsOf(type), "test"));
    const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(1));
    const auto plain = optimizer->Bind(Params(), AsSpan(theta));
    const auto scaled = Bind(type, 1);
    Run wanted = Start(*plain);
    Run got = Start(*scaled);
    for (int64_t step = 0; step < 10; ++step) {
      Step(*plain, step, &wanted);
      Step(*scaled, step, &got);
    }
    CHECK(checks::SameBits(got.params, wanted.params));
    CHECK(checks::SameBits(got.state, wanted.state));
  }
}

TEST_CASE("A step is the rule's by the multiplier, its state the rule's, of every type") {
  for (const std::string& type : Types()) {
    CAPTURE(type);
    const auto plain = Bind(type, 1);
    for (const float multiplier : {0.25F, 3.F}) {
      const auto scaled = Bind(type, multiplier);
      CHECK(scaled->state_layout() == plain->state_layout());
      Run run = Start(*scaled);
      for (int64_t step = 0; step < 10; ++step) {
        const Run before = run;
        Run whole = run;
        Step(*plain, step, &whole);
        Step(*scaled, step, &run);
        bool as_defined = true;
        for (size_t i = 0; i < run.params.size(); ++i) {
          const float p = before.params[i];
          as_defined &= run.params[i] == p + multiplier * (whole.params[i] - p);
        }
        CHECK(as_defined);
        // SOAP's first makes none.
        CHECK((step == 0 || !checks::SameBits(run.params, before.params)));
        CHECK(checks::SameBits(run.state, whole.state));
      }
    }
  }
}

TEST_CASE(
    "Gradient descent with steps times s is gradient descent with the learning rate times s") {
  const auto sgd = [](double rate) {
    const auto optimizer =
        OptimizerRegistry().Make(Config::Parse(R"({"type": "LearnableSGD"})", "test")
                                     .With("learning_rate", std::to_string(rate)));
    return optimizer->Bind(Params(), AsSpan(optimizer->InitTheta(Key{})));
  };
  const auto direct = sgd(0.5);
  const auto scaled = ScaleSteps(sgd(0.125), 4);
  Run wanted = Start(*direct);
  Run got = Start(*scaled);
  for (int64_t step = 0; step < 10; ++step) {
    Step(*direct, step, &wanted);
    Step(*scaled, step, &got);
  }
  for (size_t i = 0; i < got.params.size(); ++i) {
    CHECK(got.params[i] == doctest::Approx(wanted.params[i]).epsilon(1e-5));
  }
}

TEST_CASE("What cannot be multiplied is an error, as is what is no multiplier") {
  CHECK_THROWS_WITH_AS(Bind("ScheduleFreeAdamW", 1),
                       "step multiplier: wanted an optimizer whose steps make the params that it "
                       "stands for; this one keeps those, an average, in its state",
                       Error);
  for (const float bad : {0.F, -1.F, std::nanf(""), INFINITY}) {
    CHECK_THROWS_AS(Bind("MLPLOpt", bad), Error);
  }
}

TEST_CASE("A rule that needs the length of the run needs it still") {
  const auto optimizer = OptimizerRegistry().Make(
      Config::Parse(R"({"type": "LearnableAdam", "schedule": "cosine"})", "test"));
  const auto rule = ScaleSteps(optimizer->Bind(Params(), AsSpan(optimizer->InitTheta(Key{}))), 2);
  Run run = Start(*rule);
  const std::vector<float> gradient(run.params.size(), 1.F);
  Workspace scratch;
  CHECK_THROWS_AS(rule->Update({.step = 0}, gradient, run.params, run.state, scratch), Error);
}

}  // namespace
}  // namespace lopt
