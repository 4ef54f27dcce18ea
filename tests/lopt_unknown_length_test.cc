#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/compare.h"
#include "lopt/base/config.h"
#include "lopt/base/eigen.h"
#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/unknown_length.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

std::string Wrapped(const std::string& optimizer) {
  return R"({"type": "UnknownLength", "optimizer": )" + optimizer + "}";
}

std::unique_ptr<UpdateRule> Bind(const std::string& config, const Layout& params) {
  const auto optimizer = OptimizerRegistry().Make(Config::Parse(config, "test"));
  return optimizer->Bind(params, AsSpan(optimizer->InitTheta(KeyFromSeed(1))));
}

// A training with the params and the state as data.
struct Training {
  explicit Training(const UpdateRule& of, std::vector<float> start)
      : rule(&of), params(std::move(start)), state(static_cast<size_t>(of.state_layout().size())) {
    rule->InitState({}, params, state);
  }
  void Step(std::span<const float> gradient, int64_t num_steps = 0) {
    rule->Update({.step = step++, .num_steps = num_steps, .loss = 1}, gradient, params, state,
                 scratch);
  }
  std::vector<float> Average() const {
    const std::span<const float> average = rule->EvalParams(params, state);
    return {average.begin(), average.end()};
  }

  const UpdateRule* rule;
  std::vector<float> params;
  std::vector<float> state;
  int64_t step = 0;
  Workspace scratch;
};

TEST_CASE("The optimizer is told that it has 70 % of the run behind it, and of 50 steps at least") {
  for (const auto& [t, told] :
       {std::array<int64_t, 2>{0, 50}, {34, 50}, {36, 52}, {64, 92}, {99, 142}, {1000, 1429}}) {
    CHECK(UnknownLength::ToldLength(t) == told);
  }
  for (int64_t t = 0; t < 100000; ++t) REQUIRE(t < UnknownLength::ToldLength(t));
  // So a linear schedule from 0.5 to 0 is at 0.5 (1 - t / T), whatever the run's length.
  const auto rule =
      Bind(Wrapped(R"({"type": "LearnableSGD", "learning_rate": 0.5, "schedule": "linear"})"),
           Layout({{"p", {1}}}));
  Training training(*rule, {0.0F});
  for (int64_t t = 0; t < 100; ++t) {
    const double before = training.params[0];
    training.Step(std::array<float, 1>{-1}, t % 2 == 0 ? 0 : 3);
    const double told = std::max(50.0, std::floor(static_cast<double>(t) / 0.7) + 1);
    const double rate = 0.5 * (1 - static_cast<double>(t) / told);
    CHECK(training.params[0] - before == doctest::Approx(rate).epsilon(1e-4));
    CHECK(rule->LearningRate({.step = t}) == doctest::Approx(rate).epsilon(1e-6));
  }
}

TEST_CASE("The average of params on a line is where its weights say") {
  // Step i of n has a weight in proportion to the binomial coefficient of i + 14 over 15; the mean
  // of i is (16 n + 1) / 17.
  const Layout layout({{"w", {1, 2}}, {"b", {1}}});
  const auto rule = Bind(Wrapped(R"({"type": "LearnableSGD", "learning_rate": 0.5})"), layout);
  Training training(*rule, {3, -1, 0});
  CHECK(training.Average() == training.params);
  for (int n = 1; n <= 200; ++n) {
    training.Step(std::array<float, 3>{1, -2, -0.5F});
    const double mean = 0.5 * (16.0 * n + 1) / 17;
    const std::vector<float> average = training.Average();
    // Each of n roundings of numbers up to 200 is at most 8e-6, and most of them fade.
    CHECK(std::abs(average[0] - (3 - mean)) < 2e-4);
    CHECK(std::abs(average[1] - (2 * mean - 1)) < 2e-4);
    CHECK(std::abs(average[2] - mean / 2) < 2e-4);
    if (n == 1) CHECK(average == training.params);
  }
}

TEST_CASE("Params and the optimizer's state are those of the optimizer that is told the lengths") {
  const Layout layout({{"w", {4, 3}}, {"b", {3}}});
  for (const char* config :
       {R"({"type": "MLPLOpt", "hidden_size": 4, "progress_features": true, "schedule": "cosine"})",
        R"({"type": "LearnedScheduler", "optimizer": {"type": "OrthogonalSteps",
            "optimizer": {"type": "LearnableSGDM", "learning_rate": 1000}}})",
        R"({"type": "RNNMLPLOpt", "hidden_size": 4, "lstm_hidden_size": 4})",
        R"({"type": "AdamW", "schedule": "linear"})"}) {
    CAPTURE(config);
    const auto inner = Bind(config, layout);
    const auto rule = Bind(Wrapped(config), layout);
    std::vector<float> start(static_cast<size_t>(layout.size()));
    Normal(KeyFromSeed(2), start);
    Training told(*inner, start);
    Training training(*rule, start);
    for (uint64_t t = 0; t < 60; ++t) {
      std::vector<float> gradient(start.size());
      Normal(FoldIn(KeyFromSeed(3), t), gradient);
      told.Step(gradient, UnknownLength::ToldLength(static_cast<int64_t>(t)));
      training.Step(gradient);
    }
    CHECK(checks::SameBits(training.params, told.params));
    CHECK(checks::SameBits(std::span<const float>(training.state).first(told.state.size()),
                           told.state));
    CHECK(training.Average() != training.params);
  }
}

TEST_CASE("An average of an average, and changed steps of one, are errors") {
  const Layout layout({{"w", {2, 2}}});
  const std::string sgd = R"({"type": "LearnableSGD"})";
  const std::string why =
      ": wanted an optimizer whose steps make the params that it stands for; this one keeps those, "
      "an average, in its state";
  for (const std::string& inner : {std::string(R"({"type": "ScheduleFreeAdamW"})"), Wrapped(sgd)}) {
    CHECK(ErrorOf([&] { Bind(Wrapped(inner), layout); }) == "UnknownLength" + why);
  }
  for (const char* type : {"OrthogonalSteps", "LearnedScheduler"}) {
    CHECK(ErrorOf([&] {
            Bind(fmt::format(R"({{"type": "{}", "optimizer": {}}})", type, Wrapped(sgd)), layout);
          }) == type + why);
  }
}

TEST_CASE("Optimizers that average losses over parts of the run's length are errors") {
  const Layout layout({{"w", {2, 2}}});
  const auto inside = [](const char* type, const std::string& optimizer) {
    return fmt::format(R"({{"type": "{}", "optimizer": {}}})", type, optimizer);
  };
  for (const char* type : {"Celo", "CeloAdam", "Sinv6"}) {
    const std::string celo = fmt::format(R"({{"type": "{}", "lstm_size": 6}})", type);
    for (const std::string& optimizer :
         {celo, inside("OrthogonalSteps", celo), inside("LearnedScheduler", celo)}) {
      CAPTURE(optimizer);
      CHECK(ErrorOf([&] { Bind(Wrapped(optimizer), layout); }) ==
            "UnknownLength: wanted an optimizer whose state does not depend on the length of the "
            "run; Celo (unless 'scheduled' is false), CeloAdam and Sinv6 average losses over parts "
            "of that length and must know it");
    }
  }
  const std::string first_phase = R"({"type": "Celo", "lstm_size": 6, "scheduled": false})";
  CHECK(Bind(Wrapped(first_phase), layout) != nullptr);
}

}  // namespace
}  // namespace lopt
