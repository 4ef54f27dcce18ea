#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/theta_opt.h"
#include "lopt/lopt/registry.h"
#include "tests/default_optimizer.h"
#include "tests/error_of.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

std::shared_ptr<const ThetaOpt> Make(const std::string& json, int64_t size = 1) {
  return std::make_shared<ThetaOpt>(Config::Parse(json, "test"), Layout({{"x", {size}}}));
}

// theta after each of the updates with these gradients, from one number.
std::vector<float> Trace(const ThetaOpt& opt, float theta, const std::vector<float>& gradients) {
  NamedArrays state = opt.InitState({&theta, 1});
  std::vector<float> trace;
  for (const float& gradient : gradients) {
    opt.Update({&gradient, 1}, {&theta, 1}, &state);
    trace.push_back(theta);
  }
  return trace;
}

std::string ErrorOfConfig(const std::string& json) {
  return ErrorOf([&] { Make(json); });
}

const std::vector<float> kGradients = {0.5F, -1.25F, 3.0F, 0.001F, -0.75F, 2.0F, 0.0F, -4.0F};

struct AdamNumbers {
  double learning_rate = 1e-2, b1 = 0.9, b2 = 0.999, epsilon = 1e-8, root = 0, decay = 0;
};

// Adam from the paper's formulas, in float64 and with the moments as explicit sums.
std::vector<double> AdamByHand(const AdamNumbers& n, double theta) {
  std::vector<double> trace;
  for (size_t t = 1; t <= kGradients.size(); ++t) {
    double m = 0;
    double v = 0;
    for (size_t i = 0; i < t; ++i) {
      const double g = kGradients[i];
      const auto age = static_cast<double>(t - 1 - i);
      m += (1 - n.b1) * std::pow(n.b1, age) * g;
      v += (1 - n.b2) * std::pow(n.b2, age) * g * g;
    }
    const double m_hat = m / (1 - std::pow(n.b1, static_cast<double>(t)));
    const double v_hat = v / (1 - std::pow(n.b2, static_cast<double>(t)));
    theta -= n.learning_rate * (m_hat / (std::sqrt(v_hat + n.root) + n.epsilon) + n.decay * theta);
    trace.push_back(theta);
  }
  return trace;
}

void CheckClose(const std::vector<float>& got, const std::vector<double>& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(1e-6));
  }
}

TEST_CASE("Adam of learning rate 1e-4 steps by -9.99999985e-05 for a first gradient of 1") {
  const auto opt = Make(R"({"type": "Adam", "learning_rate": 1e-4, "epsilon_root": 1e-8})");
  CHECK(std::abs(double{Trace(*opt, 0, {1})[0]} + 9.99999985e-05) < 1e-11);
}

TEST_CASE("Adam with epsilon_root 1e-8 follows the JAX package's trace on x^2") {
  const auto opt = Make(R"({"type": "Adam", "learning_rate": 1e-3, "epsilon_root": 1e-8})");
  float x = 1;
  NamedArrays state = opt->InitState({&x, 1});
  for (const double wanted : {.99900000000625, .9980000262163355, .9970000960688944,
                              .9960002269307704, .9950004360586534}) {
    const float gradient = 2 * x;
    opt->Update({&gradient, 1}, {&x, 1}, &state);
    CHECK(std::abs(x - wanted) < 1e-7);
  }
}

TEST_CASE("SGDM follows the known trace on x^2") {
  const auto opt = Make(R"({"type": "SGDM", "learning_rate": 0.01, "momentum": 0.9})");
  float x = 1;
  NamedArrays state = opt->InitState({&x, 1});
  for (const double wanted : {.98, .9424, .889712, .82449856, .7493164928}) {
    const float gradient = 2 * x;
    opt->Update({&gradient, 1}, {&x, 1}, &state);
    CHECK(std::abs(x - wanted) < 1e-7);
  }
}

TEST_CASE("Adam equals the paper's formulas computed in float64") {
  CheckClose(Trace(*Make(R"({"type": "Adam", "learning_rate": 0.01})"), 0.7F, kGradients),
             AdamByHand({}, 0.7F));
  CheckClose(
      Trace(*Make(R"({"type": "Adam", "learning_rate": 0.05, "beta1": 0.5, "beta2": 0.9,
                             "epsilon": 0.1, "epsilon_root": 0.2})"),
            0.7F, kGradients),
      AdamByHand({.learning_rate = .05, .b1 = .5, .b2 = .9, .epsilon = .1, .root = .2}, 0.7F));
}

TEST_CASE("AdamW decays theta apart from the moments") {
  CheckClose(Trace(*Make(R"({"type": "AdamW", "learning_rate": 0.01, "weight_decay": 0.3})"), 2.0F,
                   kGradients),
             AdamByHand({.decay = .3}, 2.0F));
  CheckClose(
      Trace(*Make(R"({"type": "AdamW", "learning_rate": 0.5, "weight_decay": 0.1})"), 1, {0, 0}),
      {.95, .9025});
}

TEST_CASE("A gradient that has always been zero moves nothing, without epsilons too") {
  const auto opt = Make(R"({"type": "Adam", "epsilon": 0})");
  CHECK(Trace(*opt, 0.25F, {0, 0}) == std::vector<float>{0.25F, 0.25F});
}

TEST_CASE("SGD subtracts the gradient times the learning rate") {
  CHECK(Trace(*Make(R"({"type": "SGD", "learning_rate": 0.5})"), 1, {1, -2}) ==
        std::vector<float>{0.5F, 1.5F});
}

TEST_CASE("clip_by_value bounds each element and clip_by_global_norm the whole") {
  const std::vector<float> gradient = {3, -4, 0.5F};
  const auto step = [&](const std::string& clip) {
    const auto opt = Make(R"({"type": "SGD", "learning_rate": 1)" + clip + "}", 3);
    std::vector<float> theta(3);
    NamedArrays state = opt->InitState(theta);
    opt->Update(gradient, theta, &state);
    return theta;
  };
  CHECK(step("") == std::vector<float>{-3, 4, -0.5F});
  CHECK(step(R"(, "clip_by_value": 1)") == std::vector<float>{-1, 1, -0.5F});
  CHECK(step(R"(, "clip_by_global_norm": 6)") == std::vector<float>{-3, 4, -0.5F});
  const double norm = std::sqrt(25.25);
  const std::vector<float> by_norm = step(R"(, "clip_by_global_norm": 1)");
  // First each element to [-1, 1], with norm 1.5, then the whole to norm 0.75.
  const std::vector<float> both = step(R"(, "clip_by_value": 1, "clip_by_global_norm": 0.75)");
  for (size_t i = 0; i < 3; ++i) {
    CHECK(by_norm[i] == doctest::Approx(-gradient[i] / norm));
    CHECK(both[i] == doctest::Approx(std::vector<double>{-.5, .5, -.25}[i]));
  }
}

TEST_CASE("A schedule's open numbers are those of the run") {
  const auto resolved = [](const std::string& members, int64_t updates) {
    const Config opt = ResolveThetaOpt(
        Config::Parse(R"({"type": "SGD", "schedule": {"type": "WarmupCosine")" + members + "}}",
                      "t"),
        updates);
    return Config::FromJson(opt.json()["schedule"]).Dump(-1);
  };
  const auto numbers = [](int64_t warmup, int64_t total) {
    return R"({"type":"WarmupCosine","warmup_steps":)" + std::to_string(warmup) +
           R"(,"warmup_fraction":null,"start_scale":0.0,"total_steps":)" + std::to_string(total) +
           R"(,"final_scale":0.0,"rises_at_once":false})";
  };
  CHECK(resolved("", 500) == numbers(100, 500));
  CHECK(resolved(R"(, "warmup_steps": 3)", 500) == numbers(3, 500));
  CHECK(resolved(R"(, "warmup_fraction": 0.05)", 500) == numbers(25, 500));
  CHECK(resolved(R"(, "warmup_fraction": 0.05)", 20) == numbers(1, 20));
  CHECK(resolved(R"(, "warmup_fraction": 0.05)", 0) == numbers(0, 1));
  CHECK(resolved(R"(, "warmup_fraction": 0.5, "total_steps": 40)", 500) == numbers(20, 40));
  CHECK_THROWS_WITH_AS(resolved("", 50),
                       "config: 'theta_opt.schedule.total_steps' must be above the warm-up's 100 "
                       "updates, got 50, the length of the run",
                       Error);
  CHECK_THROWS_WITH_AS(resolved(R"(, "warmup_fraction": 0.99, "total_steps": 10)", 50),
                       "config: 'theta_opt.schedule.total_steps' must be above the warm-up's 10 "
                       "updates, got 10",
                       Error);
  const auto by_name = [](const std::string& name) {
    const Config opt =
        ResolveThetaOpt(Config::Parse(R"({"type": "Lion", "schedule": ")" + name + "\"}", "t"), 40);
    return Config::FromJson(opt.json()).Dump(-1);
  };
  CHECK(by_name("cosine") == R"({"type":"Lion","schedule":{"type":"Cosine","total_steps":40}})");
  CHECK(by_name("warmup-cosine") ==
        R"({"type":"Lion","schedule":{"type":"WarmupCosine","warmup_steps":4,)"
        R"("warmup_fraction":null,"start_scale":0.0,"total_steps":40,"final_scale":0.0,)"
        R"("rises_at_once":true}})");
  CHECK(by_name("constant") == R"({"type":"Lion","schedule":"constant"})");
  // Nothing is open any more, and other schedules have nothing that is.
  const Config done =
      Config::Parse(R"({"type": "SGD", "schedule": )" + numbers(25, 500) + "}", "t");
  CHECK(ResolveThetaOpt(done, 900).Dump() == done.Dump());
  for (const char* text :
       {R"({"type": "SGD"})", R"({"type": "SGD", "schedule": {"type": "Warmup"}})"}) {
    CHECK(ResolveThetaOpt(Config::Parse(text, "t"), 900).Dump() == Config::Parse(text, "t").Dump());
  }
}

TEST_CASE("Schedules of optimizers in theta_opt have the length of the run where they need one") {
  const auto resolved = [](const std::string& text) {
    return ResolveThetaOpt(Config::Parse(text, "t"), 40).Dump(-1);
  };
  const std::string orthogonal =
      R"({"type":"OrthogonalSteps","optimizer":{"type":"AdamW","schedule":)";
  CHECK(resolved(orthogonal + R"("cosine"}})") ==
        orthogonal + R"({"type":"Cosine","total_steps":40}}})");
  CHECK(resolved(R"({"type":"MatricesAndVectors","matrices":)" + orthogonal +
                 R"("linear"}},"vectors":{"type":"Lion","schedule":"cosine"}})") ==
        R"({"type":"MatricesAndVectors","matrices":)" + orthogonal +
            R"({"type":"Linear","total_steps":40}}},"vectors":{"type":"Lion",)"
            R"("schedule":{"type":"Cosine","total_steps":40}}})");
  // These steps are as they were: UnknownLength tells a length, and half a step is not rounded.
  const std::string as_given[] = {
      R"({"type":"UnknownLength","optimizer":{"type":"AdamW","schedule":"cosine"}})",
      orthogonal + R"({"type":"WarmupCosine","warmup_fraction":0.25,"total_steps":6}}})",
      orthogonal + R"("constant"}})", orthogonal + R"("no such one"}})"};
  for (const std::string& text : as_given) {
    CHECK(resolved(text) == text);
  }
  CHECK_THROWS_WITH_AS(
      resolved(orthogonal + R"({"type":"WarmupCosine"}}})"),
      "config: 'theta_opt.optimizer.schedule.total_steps' must be above the warm-up's 100 updates, "
      "got 40, the length of the run",
      Error);
  const auto opt = Make(resolved(orthogonal + R"("cosine"}})"));
  NamedArrays state = opt->InitState(std::vector<float>(1));
  const double rate = opt->LearningRate(state);
  state.At("count").As<int64_t>()[0] = 20;
  CHECK(opt->LearningRate(state) == doctest::Approx(rate / 2));
}

TEST_CASE("A schedule ends where the learning rate becomes 0 and stays it") {
  const auto ends = [](const std::string& schedule) {
    const auto opt = Make(R"({"type": "SGD", "schedule": )" + schedule + "}");
    NamedArrays state = opt->InitState(std::vector<float>(1));
    std::vector<int64_t> by_count;
    for (int64_t& count = state.At("count").As<int64_t>()[0]; count < 6; ++count) {
      by_count.push_back(opt->EndOfSchedule(state, 6).value_or(-1));
    }
    return by_count;
  };
  const std::vector<int64_t> never(6, -1);
  CHECK(ends(R"("constant")") == never);
  CHECK(ends(R"({"type": "Linear", "total_steps": 4})") ==
        std::vector<int64_t>{-1, -1, -1, -1, 4, 4});
  CHECK(ends(R"({"type": "Warmup", "warmup_steps": 3})") == never);
  CHECK(ends(R"({"type": "Piecewise", "boundaries": [1], "scales": [0, 0]})") == never);
  CHECK(ends(R"({"type": "Piecewise", "boundaries": [1, 5], "scales": [1, 0, 1]})") == never);
  CHECK(ends(R"({"type": "Piecewise", "boundaries": [1, 6], "scales": [1, 0, 1]})") ==
        std::vector<int64_t>{-1, 1, 1, 1, 1, 1});
}

TEST_CASE("A schedule scales the learning rate by the updates made") {
  const auto opt = Make(R"({"type": "SGD", "learning_rate": 2,
      "schedule": {"type": "Piecewise", "boundaries": [1, 2], "scales": [1, 0.5, 0.25]}})");
  CHECK(Trace(*opt, 0, {1, 1, 1, 1}) == std::vector<float>{-2, -3, -3.5F, -4});
  float theta = 0;
  NamedArrays state = opt->InitState({&theta, 1});
  CHECK(opt->LearningRate(state) == 2);
  const float gradient = 1;
  opt->Update({&gradient, 1}, {&theta, 1}, &state);
  CHECK(opt->LearningRate(state) == 1);
}

TEST_CASE("A state that went through named arrays goes on with the same bits") {
  for (const char* type : {"Adam", "AdamW", "SGD", "SGDM"}) {
    CAPTURE(type);
    const auto opt = Make(std::string(R"({"type": ")") + type + R"("})");
    const std::vector<float> whole = Trace(*opt, 0.3F, kGradients);
    float theta = 0.3F;
    NamedArrays state = opt->InitState({&theta, 1});
    for (size_t i = 0; i < kGradients.size(); ++i) {
      NamedArrays stored;
      stored.Merge("theta_opt/", state);
      state = stored.Extract("theta_opt/");
      opt->Update({&kGradients[i], 1}, {&theta, 1}, &state);
      CHECK(theta == whole[i]);
    }
  }
}

// Theta of a matrix and a vector.
const Layout kNetwork({{"w", {2, 2}}, {"b", {2}}});

std::vector<float> Drawn(uint64_t seed) {
  std::vector<float> numbers(static_cast<size_t>(kNetwork.size()));
  Normal(KeyFromSeed(seed), numbers);
  return numbers;
}

// Theta after updates [first, last) with drawn gradients.
void Train(const ThetaOpt& opt, uint64_t first, uint64_t last, std::vector<float>* theta,
           NamedArrays* state) {
  for (uint64_t t = first; t < last; ++t) opt.Update(Drawn(10 + t), *theta, state);
}

TEST_CASE("theta_opt of a float32 rule is the rule on the same gradients, bit for bit") {
  for (const char* config :
       {R"({"type": "Muon", "learning_rate": 0.02, "weight_decay": 0.1})",
        R"({"type": "Lion", "schedule": {"type": "Cosine", "total_steps": 5}})",
        R"({"type": "NAdamW"})", R"({"type": "ScheduleFreeAdamW", "learning_rate": 0.1})",
        R"({"type": "SOAP", "frequency": 2})", R"({"type": "Nesterov"})", R"({"type": "Prodigy"})",
        R"({"type": "LearnableAdam"})"}) {
    CAPTURE(config);
    const ThetaOpt opt(Config::Parse(config, "test"), kNetwork);
    std::vector<float> theta = Drawn(1);
    NamedArrays state = opt.InitState(theta);
    Train(opt, 0, 5, &theta, &state);

    const auto optimizer = OptimizerRegistry().Make(Config::Parse(config, "test"));
    const Eigen::VectorXf weights = optimizer->InitTheta(KeyFromSeed(0));
    const auto rule =
        optimizer->Bind(kNetwork, {weights.data(), static_cast<size_t>(weights.size())});
    std::vector<float> params = Drawn(1);
    std::vector<float> row(static_cast<size_t>(rule->state_layout().size()));
    rule->InitState({}, params, row);
    Workspace scratch;
    for (int64_t t = 0; t < 5; ++t) {
      rule->Update({.step = t}, Drawn(10 + static_cast<uint64_t>(t)), params, row, scratch);
    }
    CHECK(theta == params);
    CHECK(opt.LearningRate(state) == rule->LearningRate({.step = 5}));
    const std::span<const float> kept = rule->EvalParams(params, row);
    CHECK(opt.EvalTheta(theta, state) == std::vector<float>(kept.begin(), kept.end()));
  }
}

TEST_CASE("Lion as theta_opt steps by the sign of its momentum, which the clipped gradient makes") {
  const auto opt = Make(R"({"type": "Lion", "learning_rate": 0.25, "clip_by_value": 1})");
  // m is 0.01 after a gradient that counts as 1, then .9 m < .1 0.2.
  CHECK(Trace(*opt, 0, {100, -0.2F}) == std::vector<float>{-0.25F, 0});
}

TEST_CASE("Muon as theta_opt makes a matrix' step orthogonal and steps vectors by AdamW") {
  const ThetaOpt opt(Config::Parse(R"({"type": "Muon", "learning_rate": 0.1})", "test"), kNetwork);
  std::vector<float> theta(6);
  NamedArrays state = opt.InitState(theta);
  // Twice a rotation: both singular values are equal, so the polynomial is one of a number.
  opt.Update(std::vector<float>{1.2F, -1.6F, 1.6F, 1.2F, 5, -5}, theta, &state);
  double x = std::sqrt(0.5);
  for (int i = 0; i < 5; ++i) x = 3.4445 * x - 4.775 * std::pow(x, 3) + 2.0315 * std::pow(x, 5);
  const double step = 0.1 * 0.2 * std::sqrt(2.0) * x;
  const double wanted[] = {-0.6 * step, 0.8 * step, -0.8 * step, -0.6 * step, -0.1, 0.1};
  for (size_t i = 0; i < 6; ++i) {
    CAPTURE(i);
    CHECK(theta[i] == doctest::Approx(wanted[i]).epsilon(1e-5));
  }
  CHECK(state.Contains("momentum/w"));
  CHECK(state.Contains("m/b"));
}

TEST_CASE("The theta that Schedule-Free AdamW stands for is the average of its steps") {
  const auto opt = Make(R"({"type": "ScheduleFreeAdamW", "learning_rate": 0.5, "beta1": 0.5})");
  float theta = 1;
  NamedArrays state = opt->InitState({&theta, 1});
  CHECK(opt->EvalTheta({&theta, 1}, state) == std::vector<float>{1});
  // z: 0.5, then 0 with a gradient of the same size; x: 0.5, 0.25; theta half-way between.
  for (const auto& [kept, taken] : {std::pair(0.5, 0.5), std::pair(0.25, 0.125)}) {
    const float gradient = 3;
    opt->Update({&gradient, 1}, {&theta, 1}, &state);
    CHECK(opt->EvalTheta({&theta, 1}, state)[0] == doctest::Approx(kept));
    CHECK(theta == doctest::Approx(taken));
  }
}

TEST_CASE("Every type of optimizer is a theta_opt that resumes, or begins with drawn weights") {
  const std::vector<std::string> drawn = {"MLPLOpt",  "AdafacMLPLOpt", "Celo",
                                          "CeloAdam", "Sinv6",         "Celo2Base",
                                          "Celo2",    "RNNMLPLOpt",    "LearnedScheduler"};
  for (const TypeEntry& entry : OptimizerRegistry().table().entries()) {
    CAPTURE(entry.type);
    const Config config = ResolveThetaOpt(Config::Parse(DefaultsOf(entry.type), "test"), 6);
    const auto make = [&] { return ThetaOpt(config, kNetwork); };
    if (std::ranges::find(drawn, entry.type) != drawn.end()) {
      CHECK(ErrorOf([&] { make(); }) ==
            "theta_opt: " + entry.type +
                " begins with drawn weights, so it is to be meta-trained itself; wanted an "
                "optimizer that its options define, such as Adam, AdamW, Muon or Lion");
      continue;
    }
    std::vector<float> theta = Drawn(1);
    NamedArrays state = make().InitState(theta);
    Train(make(), 0, 3, &theta, &state);
    CHECK(theta != Drawn(1));
    NamedArrays stored;
    stored.Merge("theta_opt/", state);
    NamedArrays resumed = stored.Extract("theta_opt/");
    std::vector<float> again = theta;
    Train(make(), 3, 6, &theta, &state);
    Train(make(), 3, 6, &again, &resumed);
    CHECK(theta == again);
    CHECK(state == resumed);
    CHECK(state.At("count").As<int64_t>()[0] == 6);
  }
}

TEST_CASE("A run whose theta_opt is Muon resumes to the same bits, and not with another rule") {
  MetaTrainConfig config = SmallExperiment(1, 6);
  config.theta_opt = Config::Parse(R"({"type": "Muon", "clip_by_global_norm": 1})", "test");
  const TempDirectory whole;
  RunMetaTraining(config, {.out_dir = whole.path()});
  const TempDirectory parts;
  MetaTrainConfig first = config;
  first.meta_steps = 3;
  RunMetaTraining(first, {.out_dir = parts.path()});
  MetaTrainConfig other = config;
  other.theta_opt = Config::Parse(R"({"type": "Lion"})", "test");
  const std::string error =
      ErrorOf([&] { RunMetaTraining(other, {.out_dir = parts.path(), .resume = true}); });
  CAPTURE(error);
  CHECK(error.find(R"(theta_opt.type: "Muon" in the checkpoint, "Lion" now)") != std::string::npos);
  RunMetaTraining(config, {.out_dir = parts.path(), .resume = true});
  CHECK(FinalTheta(parts.path()) == FinalTheta(whole.path()));
  CHECK(MetricsLines(parts.path()) == MetricsLines(whole.path()));
}

TEST_CASE("A run writes the theta that its theta_opt stands for") {
  MetaTrainConfig config = SmallExperiment(1, 4);
  config.theta_opt =
      Config::Parse(R"({"type": "ScheduleFreeAdamW", "learning_rate": 0.05})", "test");
  const TempDirectory directory;
  const MetaTrainResult result = RunMetaTraining(config, {.out_dir = directory.path()});
  const NamedArrays theta = FinalTheta(directory.path());
  for (const auto& [name, array] : theta) {
    CAPTURE(name);
    CHECK(array == result.learner.theta_opt.At("x/" + name));
  }
  CHECK(result.theta.theta != result.learner.theta);
}

TEST_CASE("Wrong sizes, states of another optimizer and bad options are errors") {
  const auto adam = Make(R"({"type": "Adam"})", 2);
  std::vector<float> theta(2);
  NamedArrays state = adam->InitState(theta);
  const std::vector<float> three(3);
  CHECK_THROWS_WITH_AS(adam->Update(three, theta, &state),
                       "theta_opt: the gradient has 3 numbers, theta has 2", Error);
  NamedArrays of_sgdm = Make(R"({"type": "SGDM"})", 2)->InitState(theta);
  CHECK_THROWS_WITH_AS(adam->Update(theta, theta, &of_sgdm),
                       "theta_opt: wanted a state of Adam with count, m [2], v [2], got one of "
                       "another optimizer or theta with count, momentum [2]",
                       Error);
  NamedArrays of_three = Make(R"({"type": "Adam"})", 3)->InitState(three);
  CHECK_THROWS_AS(adam->Update(theta, theta, &of_three), Error);
  CHECK(ErrorOfConfig(R"({"type": "SGD", "schedule": {"type": "Piecewise", "boundaries": [5]}})") ==
        "config: 'theta_opt.schedule.scales' must have one number more than boundaries, which has "
        "1, got 1");
  CHECK(ErrorOfConfig(R"({"type": "SGD", "clip_by_valu": 1, "schedule": {"type": "WarmupCosine",
                          "total_steps": 3, "warmup_steps": 5}})") ==
        "config: 2 problems\n  unknown key 'theta_opt.clip_by_valu'; valid keys: learning_rate, "
        "schedule, clip_by_value, clip_by_global_norm; did you mean 'clip_by_value'?\n  "
        "'theta_opt.schedule.total_steps' must be above the warm-up's 5 updates, got 3");
  CHECK(ErrorOfConfig(R"({"type": "SGD", "schedule": "cosine"})") ==
        "theta_opt: SGD with schedule 'cosine' needs the length of the run, which is not fixed; "
        "wanted a schedule with total_steps, which a meta-training run fills in, and no other use "
        "of the length");
  CHECK(ErrorOfConfig(R"({"type": "Adam", "b1": 0.5})") ==
        "config: unknown key 'theta_opt.b1'; valid keys: learning_rate, schedule, beta1, beta2, "
        "epsilon, epsilon_root, clip_by_value, clip_by_global_norm; did you mean 'beta1'?");
  CHECK(ErrorOfConfig(R"({"type": "Muon", "clip_by_value": 0})") ==
        "config: 'theta_opt.clip_by_value' must be a number above 0, got 0");
  CHECK(ErrorOfConfig(R"({"type": "Adams"})")
            .starts_with("config: 'theta_opt.type' is 'Adams'; valid types of theta_opt: "));
}

}  // namespace
}  // namespace lopt
