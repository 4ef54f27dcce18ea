#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/learner/learning_rate_schedule.h"
#include "lopt/learner/theta_opt.h"

namespace lopt {
namespace {

std::shared_ptr<const ThetaOpt> Make(const std::string& json) {
  return ThetaOptRegistry().Make(Config::Parse(json, "test"));
}

double Scale(const std::string& schedule, int64_t updates) {
  return LearningRateScheduleRegistry().Make(Config::Parse(schedule, "test"))->Scale(updates);
}

// theta after each of the updates with these gradients, from one number.
std::vector<float> Trace(const ThetaOpt& opt, float theta, const std::vector<float>& gradients) {
  NamedArrays state = opt.InitState(1);
  std::vector<float> trace;
  for (const float& gradient : gradients) {
    opt.Update({&gradient, 1}, {&theta, 1}, &state);
    trace.push_back(theta);
  }
  return trace;
}

std::string ErrorOf(const std::string& json) {
  try {
    Make(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
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
  NamedArrays state = opt->InitState(1);
  float x = 1;
  for (const double wanted : {.99900000000625, .9980000262163355, .9970000960688944,
                              .9960002269307704, .9950004360586534}) {
    const float gradient = 2 * x;
    opt->Update({&gradient, 1}, {&x, 1}, &state);
    CHECK(std::abs(x - wanted) < 1e-7);
  }
}

TEST_CASE("SGDM follows the known trace on x^2") {
  const auto opt = Make(R"({"type": "SGDM", "learning_rate": 0.01, "momentum": 0.9})");
  NamedArrays state = opt->InitState(1);
  float x = 1;
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
    const auto opt = Make(R"({"type": "SGD", "learning_rate": 1)" + clip + "}");
    NamedArrays state = opt->InitState(3);
    std::vector<float> theta(3);
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

TEST_CASE("Warmup rises linearly from start_scale to 1 and stays") {
  const std::string plain = R"({"type": "Warmup", "warmup_steps": 4})";
  CHECK(Scale(plain, 0) == 0);
  CHECK(Scale(plain, 1) == 0.25);
  CHECK(Scale(plain, 4) == 1);
  CHECK(Scale(plain, 1000) == 1);
  const std::string from = R"({"type": "Warmup", "warmup_steps": 4, "start_scale": 0.5})";
  CHECK(Scale(from, 0) == 0.5);
  CHECK(Scale(from, 2) == 0.75);
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
           R"(,"final_scale":0.0})";
  };
  CHECK(resolved("", 500) == numbers(100, 500));
  CHECK(resolved(R"(, "warmup_steps": 3)", 500) == numbers(3, 500));
  CHECK(resolved(R"(, "warmup_fraction": 0.05)", 500) == numbers(25, 500));
  CHECK(resolved(R"(, "warmup_fraction": 0.05)", 20) == numbers(1, 20));
  CHECK(resolved(R"(, "warmup_fraction": 0.05)", 0) == numbers(0, 1));
  CHECK(resolved(R"(, "warmup_fraction": 0.5, "total_steps": 40)", 500) == numbers(20, 40));
  CHECK_THROWS_WITH_AS(resolved("", 50),
                       "WarmupCosine: total_steps (50) must be greater than warmup_steps (100)",
                       Error);
  // Nothing is open any more, and other schedules have nothing that is.
  const Config done =
      Config::Parse(R"({"type": "SGD", "schedule": )" + numbers(25, 500) + "}", "t");
  CHECK(ResolveThetaOpt(done, 900).Dump() == done.Dump());
  for (const char* text :
       {R"({"type": "SGD"})", R"({"type": "SGD", "schedule": {"type": "Warmup"}})"}) {
    CHECK(ResolveThetaOpt(Config::Parse(text, "t"), 900).Dump() == Config::Parse(text, "t").Dump());
  }
}

TEST_CASE("WarmupCosine falls along half a cosine to final_scale") {
  const std::string schedule =
      R"({"type": "WarmupCosine", "warmup_steps": 100, "total_steps": 300, "final_scale": 0.2})";
  CHECK(Scale(schedule, 0) == 0);
  CHECK(Scale(schedule, 50) == doctest::Approx(0.5));
  CHECK(Scale(schedule, 100) == doctest::Approx(1));
  CHECK(Scale(schedule, 150) == doctest::Approx(0.2 + 0.8 * (1 + std::numbers::sqrt2 / 2) / 2));
  CHECK(Scale(schedule, 200) == doctest::Approx(0.6));
  CHECK(Scale(schedule, 300) == doctest::Approx(0.2));
  CHECK(Scale(schedule, 5000) == doctest::Approx(0.2));
}

TEST_CASE("Piecewise changes at its boundaries") {
  const std::string schedule =
      R"({"type": "Piecewise", "boundaries": [10, 20], "scales": [1, 0.5, 0.1]})";
  CHECK(Scale(schedule, 0) == 1);
  CHECK(Scale(schedule, 9) == 1);
  CHECK(Scale(schedule, 10) == 0.5);
  CHECK(Scale(schedule, 19) == 0.5);
  CHECK(Scale(schedule, 20) == 0.1);
}

TEST_CASE("A schedule scales the learning rate by the updates made") {
  const auto opt = Make(R"({"type": "SGD", "learning_rate": 2,
      "schedule": {"type": "Piecewise", "boundaries": [1, 2], "scales": [1, 0.5, 0.25]}})");
  CHECK(Trace(*opt, 0, {1, 1, 1, 1}) == std::vector<float>{-2, -3, -3.5F, -4});
  NamedArrays state = opt->InitState(1);
  CHECK(opt->LearningRate(state) == 2);
  float theta = 0;
  const float gradient = 1;
  opt->Update({&gradient, 1}, {&theta, 1}, &state);
  CHECK(opt->LearningRate(state) == 1);
}

TEST_CASE("A state that went through named arrays goes on with the same bits") {
  for (const char* type : {"Adam", "AdamW", "SGD", "SGDM"}) {
    CAPTURE(type);
    const auto opt = Make(std::string(R"({"type": ")") + type + R"("})");
    const std::vector<float> whole = Trace(*opt, 0.3F, kGradients);
    NamedArrays state = opt->InitState(1);
    float theta = 0.3F;
    for (size_t i = 0; i < kGradients.size(); ++i) {
      NamedArrays stored;
      stored.Merge("theta_opt/", state);
      state = stored.Extract("theta_opt/");
      opt->Update({&kGradients[i], 1}, {&theta, 1}, &state);
      CHECK(theta == whole[i]);
    }
  }
}

TEST_CASE("Wrong sizes, states of another optimizer and bad options are errors") {
  const auto adam = Make(R"({"type": "Adam"})");
  NamedArrays state = adam->InitState(2);
  std::vector<float> theta(2);
  const std::vector<float> three(3);
  CHECK_THROWS_WITH_AS(adam->Update(three, theta, &state),
                       "theta_opt: the gradient has 3 numbers, theta has 2", Error);
  NamedArrays of_sgd = Make(R"({"type": "SGD"})")->InitState(2);
  CHECK_THROWS_AS(adam->Update(theta, theta, &of_sgd), Error);
  NamedArrays of_three = adam->InitState(3);
  CHECK_THROWS_AS(adam->Update(theta, theta, &of_three), Error);
  CHECK(ErrorOf(R"({"type": "SGD", "schedule": {"type": "Piecewise", "boundaries": [5]}})") ==
        "Piecewise: scales must have one number more than boundaries, got 1 and 1");
  CHECK(ErrorOf(R"({"type": "SGD", "schedule": {"type": "Piecewise", "boundaries": [5, 5],
                    "scales": [1, 1, 1]}})") ==
        "Piecewise: boundaries must be ascending, got 5 before 5");
  CHECK(ErrorOf(R"({"type": "SGD", "schedule": {"type": "WarmupCosine", "total_steps": 100}})") ==
        "WarmupCosine: total_steps (100) must be greater than warmup_steps (100)");
  CHECK(ErrorOf(R"({"type": "SGD", "schedule": {"type": "WarmupCosine"}})") ==
        "WarmupCosine: total_steps is missing; a meta-training run would fill in its own");
  CHECK(ErrorOf(R"({"type": "SGD", "schedule": {"type": "WarmupCosine", "total_steps": 100,
                    "warmup_steps": 10, "warmup_fraction": 0.1}})") ==
        "WarmupCosine: give warmup_steps (10) or warmup_fraction (0.1), not both");
  CHECK(ErrorOf(R"({"type": "Adam", "b1": 0.5})") ==
        "config: unknown key 'b1'; valid keys: learning_rate, schedule, clip_by_value, "
        "clip_by_global_norm, beta1, beta2, epsilon, epsilon_root; did you mean 'beta1'?");
}

TEST_CASE("An optimizer of one's own is checked like those of a config") {
  class Still final : public ThetaOpt {
   public:
    explicit Still(const ThetaOptOptions& options) : ThetaOpt(options, {}) {}

   private:
    void DoUpdate(double, int64_t, std::span<const double>, std::span<float>,
                  std::span<const std::span<float>>) const override {}
  };
  ThetaOptOptions options;
  CHECK_NOTHROW(Still{options});
  options.clip_by_value = 0;
  options.schedule = Config::Parse(R"({"type": "Warmup", "start_scale": 2})", "test");
  CHECK_THROWS_WITH_AS(Still{options},
                       "theta_opt: 2 problems\n"
                       "  'schedule.start_scale' must be a number in [0, 1], got 2\n"
                       "  clip_by_value must be above 0, got 0",
                       Error);
}

}  // namespace
}  // namespace lopt
