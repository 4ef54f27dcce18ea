// The baselines that are not tuned.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <regex>
#include <string>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/file.h"
#include "lopt/base/key.h"
#include "lopt/evaluation/baselines.h"
#include "lopt/evaluation/evaluated_optimizers.h"
#include "lopt/lopt/registry.h"
#include "tests/paths.h"

namespace lopt {
namespace {

const Layout kVector({{"b", {3}}});

std::unique_ptr<UpdateRule> RuleOf(const std::string& name, const Layout& params = kVector) {
  const auto optimizer = BaselinesNamed(name)[0].Make({});
  const Eigen::VectorXf theta = optimizer->InitTheta(Key{});
  return optimizer->Bind(params, AsSpan(theta));
}

// The gradients of a run.
std::vector<std::vector<float>> Gradients(int64_t steps) {
  std::vector<std::vector<float>> gradients;
  for (int64_t t = 0; t < steps; ++t) {
    Normal(FoldIn(KeyFromSeed(7), static_cast<uint64_t>(t)), gradients.emplace_back(3));
  }
  return gradients;
}

// The params after the run, from 1, 2, 3.
std::vector<float> Ran(const UpdateRule& rule, const std::vector<std::vector<float>>& gradients) {
  std::vector<float> params = {1, 2, 3};
  std::vector<float> state(static_cast<size_t>(rule.state_layout().size()));
  const int64_t steps = std::ssize(gradients);
  rule.InitState({.num_steps = steps}, params, state);
  Workspace scratch;
  for (int64_t t = 0; t < steps; ++t) {
    rule.Update({.step = t, .num_steps = steps}, gradients[static_cast<size_t>(t)], params, state,
                scratch);
  }
  return params;
}

TEST_CASE("opt_list-first has the published numbers, schedule and, but for little, update") {
  constexpr int64_t kSteps = 60;
  constexpr double kRate = 0.0011948335721160095;
  constexpr double kDecay = 0.010141964334059882;
  const auto gradients = Gradients(kSteps);
  const std::vector<float> got = Ran(*RuleOf("opt_list-first"), gradients);
  const double beta1 = 0.9360043452616368;
  const double beta2 = 0.9989497406214962;
  const double epsilon = 5.875814422073298e-06;
  const double constant = 0.747304046223346 * kSteps;
  for (size_t i = 0; i < 3; ++i) {
    double p = static_cast<double>(i + 1);
    double published = p;
    double m = 0;
    double v = 0;
    for (int64_t t = 0; t < kSteps; ++t) {
      const double g = gradients[static_cast<size_t>(t)][i];
      const double decayed = std::max(static_cast<double>(t), constant) - constant;
      const double cosine = std::cos(std::numbers::pi * decayed / (kSteps - constant));
      const double rate = kRate * (cosine / 2 + 0.5);
      m = beta1 * m + (1 - beta1) * g;
      v = beta2 * v + (1 - beta2) * g * g;
      const auto n = static_cast<double>(t + 1);
      const double root = std::sqrt(1 - std::pow(beta2, n));
      const double correction = 1 - std::pow(beta1, n);
      p -= rate * (m / correction / (std::sqrt(v) / root + epsilon) + kDecay * p);
      published -= rate * root / correction * (m / (std::sqrt(v) + epsilon) + kDecay * published);
    }
    CAPTURE(i);
    CHECK(std::abs(p - static_cast<double>(i + 1)) > 1e-3);  // it has moved
    CHECK(static_cast<double>(got[i]) == doctest::Approx(p).epsilon(2e-6));
    // The published decay is multiplied by root / correction, which is from 0 to 1.
    CHECK(std::abs(p - published) < kRate * kDecay * kSteps * published);
  }
}

TEST_CASE("NAdamW-AlgoPerf rises over a tenth of the training and falls along half a cosine") {
  const auto rule = RuleOf("NAdamW-AlgoPerf");
  constexpr double kRate = 0.00190834618600756;
  const std::map<int64_t, double> wanted = {
      {0, 0}, {15, kRate / 2}, {30, kRate}, {165, kRate / 2}, {300, 0}};
  for (const auto& [step, rate] : wanted) {
    CAPTURE(step);
    CHECK(rule->LearningRate({.step = step, .num_steps = 300}) == doctest::Approx(rate));
  }
  const nlohmann::json optimizer =
      BaselinesNamed("NAdamW-AlgoPerf")[0].Definition().json().at("optimizer");
  for (const auto& [key, number] :
       std::map<std::string, double>{{"beta1", 1 - 0.09090652249},
                                     {"beta2", 0.998898321921855},
                                     {"epsilon", 1e-8},
                                     {"weight_decay", 0.08121616522670176}}) {
    CAPTURE(key);
    CHECK(optimizer.at(key).get<double>() == doctest::Approx(number).epsilon(1e-12));
  }
}

TEST_CASE("Prodigy follows algorithm 4 of its paper, and comes near the solution untuned") {
  constexpr int64_t kSteps = 300;
  const double target[] = {-1, 2.5, 3};
  // In float64, from the gradients of |p - target|^2 / 2.
  double p[] = {1, 2, 3};
  const double x0[] = {1, 2, 3};
  double m[3] = {};
  double v[3] = {};
  double s[3] = {};
  double r = 0;
  double d = 1e-6;
  const auto rule = RuleOf("Prodigy");
  std::vector<float> params = {1, 2, 3};
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  rule->InitState({.num_steps = kSteps}, params, state);
  Workspace scratch;
  const double root = std::sqrt(0.999);
  for (int64_t t = 0; t < kSteps; ++t) {
    const double gamma = (1 + std::cos(std::numbers::pi * static_cast<double>(t) / kSteps)) / 2;
    std::vector<float> gradient;
    for (size_t i = 0; i < 3; ++i) {
      gradient.push_back(static_cast<float>(static_cast<double>(params[i]) - target[i]));
    }
    rule->Update({.step = t, .num_steps = kSteps}, gradient, params, state, scratch);
    double product = 0;
    double norm = 0;
    double next[3];
    for (size_t i = 0; i < 3; ++i) {
      const double g = p[i] - target[i];
      m[i] = 0.9 * m[i] + 0.1 * d * g;
      v[i] = 0.999 * v[i] + 0.001 * d * d * g * g;
      product += g * (x0[i] - p[i]);
      s[i] = root * s[i] + (1 - root) * gamma * d * d * g;
      norm += std::abs(s[i]);
      next[i] = p[i] - gamma * d * m[i] / (std::sqrt(v[i]) + d * 1e-8);
    }
    r = root * r + (1 - root) * gamma * d * d * product;
    d = std::max(d, r / norm);
    for (size_t i = 0; i < 3; ++i) p[i] = next[i];
    if (t == 20) CHECK(static_cast<double>(state[0]) == doctest::Approx(d).epsilon(1e-2));
  }
  for (size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    CHECK(static_cast<double>(params[i]) == doctest::Approx(p[i]).epsilon(1e-3));
    CHECK(std::abs(p[i] - target[i]) < 0.1);
  }
}

TEST_CASE("Muon-untuned steps matrices at 0.03 and vectors, by AdamW, at 0.003") {
  const auto rule = RuleOf("Muon-untuned", Layout({{"b", {2}}, {"w", {2, 2}}}));
  std::vector<float> params(6);
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  Workspace scratch;
  // Twice a rotation: both singular values are equal, so the polynomial is one of a number.
  const std::array<float, 6> gradient = {5, -5, 1.2F, -1.6F, 1.6F, 1.2F};
  rule->Update({.step = 0, .num_steps = 1}, gradient, params, state, scratch);
  double x = std::sqrt(0.5);
  for (int i = 0; i < 5; ++i) x = 3.4445 * x - 4.775 * std::pow(x, 3) + 2.0315 * std::pow(x, 5);
  const double step = 0.03 * x;
  const double wanted[] = {-0.003, 0.003, -0.6 * step, 0.8 * step, -0.8 * step, -0.6 * step};
  for (size_t i = 0; i < 6; ++i) {
    CAPTURE(i);
    CHECK(static_cast<double>(params[i]) == doctest::Approx(wanted[i]).epsilon(1e-4));
  }
}

TEST_CASE("Adam-untuned and ScheduleFree-untuned step by their rates at first") {
  for (const auto& [name, rate] :
       std::map<std::string, double>{{"Adam-untuned", 0.001}, {"ScheduleFree-untuned", 0.0025}}) {
    CAPTURE(name);
    CHECK(BaselinesNamed(name)[0].learning_rate() == rate);
    CHECK(BaselinesNamed(name)[0].tuned.empty());
    const std::vector<float> got = Ran(*RuleOf(name), {{4, -4, 4}});
    for (size_t i = 0; i < 3; ++i) {
      const double wanted = static_cast<double>(i + 1) + (i == 1 ? rate : -rate);
      CHECK(static_cast<double>(got[i]) == doctest::Approx(wanted).epsilon(1e-6));
    }
  }
}

TEST_CASE("Groups of baselines and names go together, each once") {
  const size_t untuned = BaselinesNamed("untuned").size();
  CHECK(BaselinesNamed("all").size() == 17 + untuned);
  CHECK(BaselinesNamed("strong,untuned").size() == 9 + untuned);
  const std::vector<Baseline> both = BaselinesNamed("untuned,Adam");
  CHECK(both.back().name == "Adam");
  for (const Baseline& baseline : both) CHECK(baseline.tuned.empty() == (baseline.name != "Adam"));
}

// Of a baseline that is tuned: the optimizer's options without those that are tuned, and the ranges
// that are tried at first.
struct ExpectedBaseline {
  const char* name;
  const char* optimizer;
  const char* ranges;
};

constexpr const char* kSgd = R"({"type": "LearnableSGD", "schedule": "constant"})";
constexpr const char* kSgdm =
    R"({"type": "LearnableSGDM", "momentum": 0.9, "schedule": "constant"})";
constexpr const char* kAdam = R"({"type": "LearnableAdam", "beta1": 0.9, "beta2": 0.999,
    "epsilon": 1e-8, "epsilon_root": 0, "weight_decay": 0, "schedule": "constant"})";
constexpr const char* kAdamW = R"({"type": "LearnableAdam", "beta1": 0.9, "beta2": 0.999,
    "epsilon": 1e-8, "epsilon_root": 0, "weight_decay": 0.01, "schedule": "constant"})";
constexpr const char* kSgdRange = R"({"learning_rate": [1e-3, 100]})";
constexpr const char* kRange = R"({"learning_rate": [1e-4, 10]})";
constexpr const char* kRangeAndDecay = R"({"learning_rate": [1e-3, 1], "weight_decay": [1e-3, 1]})";

// As docs/evaluation.md has them; "cosine" for the schedule of NAME-cosine.
const std::vector<ExpectedBaseline> kTuned = {
    {"SGD", kSgd, kSgdRange},
    {"SGDM", kSgdm, kRange},
    {"Adam", kAdam, kRange},
    {"AdamW", kAdamW, kRange},
    {"SGD-cosine", kSgd, kSgdRange},
    {"SGDM-cosine", kSgdm, kRange},
    {"Adam-cosine", kAdam, kRange},
    {"AdamW-cosine", kAdamW, kRange},
    {"AdamW-cosine-decay", R"({"type": "LearnableAdam", "beta1": 0.9, "beta2": 0.999,
        "epsilon": 1e-8, "epsilon_root": 0, "schedule": "cosine"})",
     kRangeAndDecay},
    {"AdamW-warmup-cosine", R"({"type": "LearnableAdam", "beta1": 0.9, "beta2": 0.999,
        "epsilon": 1e-8, "epsilon_root": 0, "schedule": "warmup-cosine"})",
     kRangeAndDecay},
    {"Adam-cosine-betas", R"({"type": "LearnableAdam", "epsilon": 1e-8, "epsilon_root": 0,
        "weight_decay": 0, "schedule": "cosine"})",
     R"({"learning_rate": [1e-3, 1], "1 - beta1": [0.02, 0.5], "1 - beta2": [1e-3, 0.2]})"},
    {"NAdamW-cosine", R"({"type": "NAdamW", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8,
        "schedule": "cosine"})",
     kRangeAndDecay},
    {"Nesterov-cosine", R"({"type": "Nesterov", "momentum": 0.9, "schedule": "cosine"})",
     R"({"learning_rate": [1e-2, 10], "weight_decay": [1e-5, 1e-2]})"},
    {"Lion-cosine", R"({"type": "Lion", "beta1": 0.9, "beta2": 0.99, "schedule": "cosine"})",
     R"({"learning_rate": [1e-4, 0.1], "weight_decay": [1e-3, 1]})"},
    {"ScheduleFreeAdamW", R"({"type": "ScheduleFreeAdamW", "beta1": 0.9, "beta2": 0.999,
        "epsilon": 1e-8, "warmup_fraction": 0.1})",
     kRangeAndDecay},
    {"SOAP-cosine", R"({"type": "SOAP", "beta1": 0.95, "beta2": 0.95, "epsilon": 1e-8,
        "frequency": 10, "max_side": 1024, "schedule": "cosine"})",
     kRangeAndDecay},
    {"Muon-cosine", R"({"type": "Muon", "momentum": 0.95, "adamw_rate": 1,
        "scale": "match_rms_adamw", "schedule": "cosine"})",
     kRangeAndDecay}};

TEST_CASE("The tuned baselines have the options and the ranges that are documented") {
  const std::vector<Baseline> tuned = BaselinesNamed("classic,strong");
  REQUIRE(tuned.size() == kTuned.size());
  for (size_t i = 0; i < tuned.size(); ++i) {
    const ExpectedBaseline& expected = kTuned[i];
    CAPTURE(expected.name);
    CHECK(tuned[i].name == expected.name);
    const nlohmann::json definition = tuned[i].Definition().json();
    nlohmann::json optimizer = definition.at("optimizer");
    nlohmann::json ranges = nlohmann::json::object();
    for (const auto& [name, range] : definition.at("tuned").items()) {
      optimizer.erase(name);
      ranges[(range.at("one_minus") == true ? "1 - " : "") + name] = {range.at("lowest"),
                                                                      range.at("highest")};
    }
    auto wanted = nlohmann::json::parse(expected.optimizer);
    if (tuned[i].name.ends_with("-cosine") && wanted.at("schedule") == "constant") {
      wanted["schedule"] = "cosine";
    }
    CHECK(optimizer == wanted);
    CHECK(ranges == nlohmann::json::parse(expected.ranges));
    CHECK_FALSE(tuned[i].random_search);
  }
}

TEST_CASE("Documents count the baselines as they are") {
  const size_t all = BaselinesNamed("all").size();
  const size_t untuned = BaselinesNamed("untuned").size();
  const std::regex tuned_words(
      "(\\d+) (?:(?:tuned )?baselines|tuned ones|of them, with|are tuned)");
  const std::regex untuned_words("(\\d+) \\[untuned ones");
  const auto counts = [](const std::string& text, const std::regex& words) {
    std::vector<size_t> found;
    for (std::sregex_iterator at(text.begin(), text.end(), words), end; at != end; ++at) {
      found.push_back(std::stoul((*at)[1]));
    }
    return found;
  };
  for (const auto& [file, times] : std::map<std::string, size_t>{{"README.md", 3},
                                                                 {"docs/start.md", 1},
                                                                 {"docs/results.md", 2},
                                                                 {"docs/evaluation.md", 2}}) {
    CAPTURE(file);
    CHECK(counts(ReadTextFile(SourcePath(file)), tuned_words) ==
          std::vector<size_t>(times, all - untuned));
  }
  CHECK(counts(ReadTextFile(SourcePath("docs/evaluation.md")), untuned_words) ==
        std::vector<size_t>{untuned});
}

TEST_CASE("The start of a meta-training has its theta, and steps times the multiplier") {
  const auto sgd = OptimizerRegistry().Make(
      Config::Parse(R"({"type": "LearnableSGD", "learning_rate": 100})", "test"));
  const NamedLearnedOptimizer learned = {
      .name = "mine", .optimizer = sgd, .theta = sgd->InitTheta(Key{})};
  const Eigen::VectorXf theta = Eigen::VectorXf::Constant(1, std::log(0.5F));
  for (const auto& [multiplier, name, wanted] :
       {std::tuple(1.0, "mine-start", 0.5F), std::tuple(0.3, "mine-start-0.3", 0.85F)}) {
    const NamedLearnedOptimizer start = StartOf(learned, theta, multiplier);
    CHECK(start.name == name);
    CHECK(start.is_start);
    float param = 1;
    Workspace scratch;
    BindLearned(start, Layout({{"p", {1}}}))
        ->Update({}, std::array<float, 1>{1}, {&param, 1}, {}, scratch);
    CHECK(param == doctest::Approx(wanted).epsilon(1e-6));
  }
}

TEST_CASE("Steps that are multiplied by a number are not tuned as well") {
  const auto sgd = OptimizerRegistry().Make(Config::Parse(R"({"type": "LearnableSGD"})", "test"));
  const NamedLearnedOptimizer learned = {
      .name = "mine", .optimizer = sgd, .theta = sgd->InitTheta(Key{})};
  EvaluatedOptimizers optimizers{
      .learned = {StartOf(learned, learned.theta, 1), StartOf(learned, learned.theta, 0.3)}};
  AddTunedSteps(&optimizers);
  CHECK(NamesOf(optimizers) ==
        std::vector<std::string>{"mine-start", "mine-start-tuned", "mine-start-0.3"});
}

}  // namespace
}  // namespace lopt
