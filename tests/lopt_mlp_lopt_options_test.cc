#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "tests/error_of.h"
#include "tests/farthest.h"
#include "tests/reference/mlp_lopt_reference.h"

namespace lopt {
namespace {

std::vector<float> NormalNumbers(uint64_t seed, int64_t size, float scale = 1) {
  std::vector<float> numbers(static_cast<size_t>(size));
  Normal(KeyFromSeed(seed), numbers);
  for (float& number : numbers) number *= scale;
  return numbers;
}

// One tensor under MLPLOpt as its definition reads (lopt/mlp/mlp_lopt.h), in double precision.
class PlainTensor {
 public:
  PlainTensor(const MLPLOptOptions& options, std::span<const float> theta, std::vector<double> p)
      : p(std::move(p)), options_(options), theta_(theta.begin(), theta.end()) {
    momenta_.assign(6, std::vector<double>(this->p.size()));
  }

  void Update(std::span<const float> g, int64_t t, int64_t steps) {
    constexpr double kDecays[] = {.1, .5, .9, .99, .999, .9999};
    for (int k = 0; k < 6; ++k) {
      for (size_t i = 0; i < p.size(); ++i) {
        momenta_[k][i] = kDecays[k] * momenta_[k][i] + (1 - kDecays[k]) * g[i];
      }
    }
    std::vector<std::vector<double>> features = {{g.begin(), g.end()}, p};
    features.insert(features.end(), momenta_.begin(), momenta_.end());
    const double done = static_cast<double>(t) / static_cast<double>(steps);
    double factor = options_.step_mult;
    if (options_.schedule == RateSchedule::kLinear) factor *= 1 - done;
    if (options_.schedule == RateSchedule::kCosine) factor *= .5 + .5 * std::cos(M_PI * done);
    if (options_.relative_step) {
      const double mean = Rms(momenta_[5]) / (1 - std::pow(.9999, static_cast<double>(t + 1)));
      factor *= Rms(features[0]) == 0 ? 0 : std::min(1., Rms(features[0]) / mean);
    }
    if (options_.relative_to_parameter) factor *= std::max(Rms(p), 1e-3);
    std::vector<double> times;
    for (const double tau : {1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000}) {
      times.push_back(std::tanh(static_cast<double>(t) / tau - 1));
    }
    if (options_.progress_features) {
      times.insert(times.end(), {done, std::log(static_cast<double>(steps)) / 10});
    }
    for (std::vector<double>& feature : features) {
      const double rms = Rms(feature);
      for (double& x : feature) x /= std::sqrt(options_.normalizer_epsilon + rms * rms);
    }
    for (size_t i = 0; i < p.size(); ++i) {
      std::vector<double> x;
      for (const std::vector<double>& feature : features) x.push_back(feature[i]);
      x.insert(x.end(), times.begin(), times.end());
      const std::vector<double> outputs = Network(x);
      p[i] -= outputs[0] * std::exp(outputs[1] * options_.exp_mult) * factor;
    }
  }

  std::vector<double> p;

 private:
  static double Rms(const std::vector<double>& x) {
    double sum = 0;
    for (const double value : x) sum += value * value;
    return std::sqrt(sum / static_cast<double>(x.size()));
  }

  std::vector<double> Network(std::vector<double> x) const {
    const double* weights = theta_.data();
    for (int64_t l = 0; l <= options_.hidden_layers; ++l) {
      std::vector<double> y(l == options_.hidden_layers ? 2 : options_.hidden_size);
      for (size_t out = 0; out < y.size(); ++out) {
        y[out] = weights[x.size() * y.size() + out];
        for (size_t in = 0; in < x.size(); ++in) y[out] += x[in] * weights[in * y.size() + out];
        if (l < options_.hidden_layers) y[out] = std::max(y[out], 0.);
      }
      weights += (x.size() + 1) * y.size();
      x = y;
    }
    return x;
  }

  MLPLOptOptions options_;
  std::vector<double> theta_;
  std::vector<std::vector<double>> momenta_;
};

// Each option alone, and all together.
std::vector<MLPLOptOptions> EachOption() {
  std::vector<MLPLOptOptions> all;
  const auto add = [&](const auto& set) {
    all.push_back({.hidden_size = 5, .step_mult = .1});
    set(all.back());
  };
  add([](MLPLOptOptions&) {});
  add([](MLPLOptOptions& o) { o.progress_features = true; });
  add([](MLPLOptOptions& o) { o.schedule = RateSchedule::kLinear; });
  add([](MLPLOptOptions& o) { o.schedule = RateSchedule::kCosine; });
  add([](MLPLOptOptions& o) { o.relative_step = true; });
  add([](MLPLOptOptions& o) { o.relative_to_parameter = true; });
  add([](MLPLOptOptions& o) { o.normalizer_epsilon = 1e-24; });
  all.push_back({.hidden_size = 5,
                 .hidden_layers = 3,
                 .exp_mult = .5,
                 .step_mult = .1,
                 .progress_features = true,
                 .schedule = RateSchedule::kCosine,
                 .relative_step = true,
                 .relative_to_parameter = true,
                 .normalizer_epsilon = 1e-24});
  return all;
}

// Weights whose every number matters.
Eigen::VectorXf Theta(const MLPLOpt& optimizer) {
  Eigen::VectorXf theta = optimizer.InitTheta(KeyFromSeed(1));
  const std::vector<float> noise = NormalNumbers(2, theta.size(), .1F);
  for (int64_t i = 0; i < theta.size(); ++i) theta[i] += noise[i];
  return theta;
}

// Tensors of ordinary, small and no size, and one that is and stays at zero gradient.
const Layout kLayout({{"w", {7, 5}}, {"zero", {16}}, {"small", {3}}, {"still", {20}}});

std::vector<float> Start() {
  std::vector<float> params = NormalNumbers(3, kLayout.size());
  for (const auto& [name, scale] : {std::pair("zero", 0.F), std::pair("small", 1e-5F)}) {
    const LayoutEntry& entry = kLayout.Find(name);
    for (int64_t i = 0; i < entry.size; ++i) params[entry.offset + i] *= scale;
  }
  return params;
}

// Ever smaller ones, but for one that is larger than all before.
std::vector<float> Gradient(int64_t step) {
  std::vector<float> gradient = NormalNumbers(
      10 + step, kLayout.size(), step == 8 ? 5 : std::pow(.3F, static_cast<float>(step)));
  const LayoutEntry& still = kLayout.Find("still");
  std::fill_n(gradient.begin() + still.offset, still.size, 0.F);
  return gradient;
}

TEST_CASE("MLPLOpt with each option follows its definition in double precision") {
  constexpr int64_t kSteps = 12;
  std::vector<std::vector<float>> ends;
  for (const MLPLOptOptions& options : EachOption()) {
    CAPTURE(ends.size());
    for (const auto& both : BothMLPLOpts(options)) {
      const MLPLOpt& optimizer = *both;
      const Eigen::VectorXf theta = Theta(optimizer);
      const auto rule = optimizer.Bind(kLayout, AsSpan(theta));
      std::vector<float> params = Start();
      std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
      std::vector<PlainTensor> plain;
      for (const LayoutEntry& entry : kLayout.entries()) {
        const auto first = params.begin() + entry.offset;
        plain.emplace_back(options, AsSpan(theta), std::vector<double>(first, first + entry.size));
      }
      Workspace scratch;
      double worst = 0;
      for (int64_t step = 0; step < kSteps; ++step) {
        const std::vector<float> gradient = Gradient(step);
        rule->Update({.step = step, .num_steps = kSteps}, gradient, params, state, scratch);
        for (size_t n = 0; n < plain.size(); ++n) {
          const LayoutEntry& entry = kLayout.entries()[n];
          plain[n].Update(std::span(gradient).subspan(entry.offset, entry.size), step, kSteps);
          for (int64_t i = 0; i < entry.size; ++i) {
            worst = Farther(worst, std::abs(params[entry.offset + i] - plain[n].p[i]));
          }
        }
      }
      CHECK(worst <= 1e-5);
      ends.push_back(params);
    }
  }
  // Every option makes a difference, far above the tolerance.
  for (size_t n = 2; n < ends.size(); ++n) {
    CAPTURE(n);
    CHECK(Farthest(ends[n], ends[0]) >= 1e-3);
  }
}

// The loss of 300 steps on sum (c - x)^2 in ten dimensions, under a network whose first output is
// the normalised gradient.
template <class Optimizer>
double LossOfDescent(MLPLOptOptions options) {
  options.hidden_size = 2;
  options.hidden_layers = 1;
  options.step_mult = .3;
  const Optimizer optimizer(options);
  std::vector<float> theta(static_cast<size_t>(optimizer.theta_layout().size()));
  const auto weight = [&](const std::string& name, int64_t i) -> float& {
    return theta[optimizer.theta_layout().Find("mlp/linear_" + name).offset + i];
  };
  weight("0/w", 0) = 1;  // o0 = relu(g) - relu(-g)
  weight("0/w", 1) = -1;
  weight("1/w", 0) = 1;
  weight("1/w", 2) = -1;
  const auto rule = optimizer.Bind(Layout({{"x", {10}}}), theta);
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  std::vector<float> x = NormalNumbers(5, 10);
  const std::vector<float> c = NormalNumbers(6, 10);
  std::vector<float> gradient(10);
  Workspace scratch;
  double loss = 0;
  for (int64_t step = 0; step <= 300; ++step) {
    loss = 0;
    for (int i = 0; i < 10; ++i) {
      gradient[i] = 2 * (x[i] - c[i]);
      loss += double{x[i] - c[i]} * (x[i] - c[i]);
    }
    if (step == 300) break;
    rule->Update({.step = step, .num_steps = 300}, gradient, x, state, scratch);
  }
  return loss;
}

template <class Optimizer>
void CheckLossesOfDescent() {
  CHECK(LossOfDescent<Optimizer>({.schedule = RateSchedule::kCosine,
                                  .relative_step = true,
                                  .normalizer_epsilon = 1e-24}) <= 1e-12);
  CHECK(LossOfDescent<Optimizer>({}) >= 1e-4);
  CHECK(LossOfDescent<Optimizer>(
            {.schedule = RateSchedule::kCosine, .normalizer_epsilon = 1e-24}) >= 1e-10);
}

TEST_CASE("With the relative step and cosine the loss of a quadratic gets arbitrarily small") {
  CheckLossesOfDescent<ReferenceMLPLOpt>();
  CheckLossesOfDescent<MLPLOpt>();
}

TEST_CASE("With every option the kernel agrees with the reference on every instruction set") {
  const MLPLOptOptions options = EachOption().back();
  const MLPLOpt fast(options);
  const ReferenceMLPLOpt reference(options);
  const Eigen::VectorXf theta = Theta(fast);
  const Layout layout({{"w", {241, 10}}, {"pieces", {70'000}}, {"b", {17}}});
  const auto train = [&](const MLPLOpt& optimizer) {
    const auto rule = optimizer.Bind(layout, AsSpan(theta));
    std::vector<float> params = NormalNumbers(4, layout.size());
    std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
    Workspace scratch;
    for (int64_t step = 0; step < 3; ++step) {
      const std::vector<float> gradient =
          NormalNumbers(20 + step, layout.size(), std::pow(.1F, static_cast<float>(step)));
      rule->Update({.step = step, .num_steps = 5}, gradient, params, state, scratch);
    }
    return params;
  };
  const std::vector<float> wanted = train(reference);
  const std::string pinned = CurrentIsa();
  for (const std::string& isa : SupportedIsas()) {
    CAPTURE(isa);
    PinIsa(isa);
    CHECK(Farthest(train(fast), wanted) <= 2e-6);
  }
  PinIsa(pinned);
}

TEST_CASE("Progress has two weights more for each hidden unit, and nothing else changes shape") {
  const MLPLOpt plain;
  const Layout params({{"w", {5, 7}}});
  const MLPLOpt progress({.progress_features = true});
  CHECK(progress.theta_layout().Find("mlp/linear_0/w").shape == Shape{21, 32});
  CHECK(progress.theta_layout().size() == plain.theta_layout().size() + 64);
  CHECK(progress.StateLayout(params) == plain.StateLayout(params));
  const MLPLOpt others({.schedule = RateSchedule::kLinear,
                        .relative_step = true,
                        .relative_to_parameter = true,
                        .normalizer_epsilon = 1e-24});
  CHECK(others.theta_layout() == plain.theta_layout());
  CHECK(others.StateLayout(params) == plain.StateLayout(params));
}

TEST_CASE("What needs the length of the run says so") {
  CHECK(MLPLOpt({.relative_step = true, .relative_to_parameter = true}).needs_num_steps().empty());
  CHECK(MLPLOpt({.schedule = RateSchedule::kLinear}).needs_num_steps() ==
        "MLPLOpt with schedule 'linear'");
  for (const auto& both :
       BothMLPLOpts({.progress_features = true, .schedule = RateSchedule::kCosine})) {
    const MLPLOpt& optimizer = *both;
    const auto rule = optimizer.Bind(Layout({{"x", {1}}}), AsSpan(optimizer.InitTheta({})));
    std::vector<float> x = {1};
    std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
    Workspace scratch;
    CHECK(
        ErrorOf([&] { rule->Update({.step = 2}, x, x, state, scratch); }) ==
        "MLPLOpt with progress_features needs the length of the run: step 2 is not one of a run of "
        "0 steps (StepInfo::num_steps; 0 means that the run's length is "
        "not known)");
  }
  CHECK(ErrorOf([] { MLPLOpt({.normalizer_epsilon = 0}); }) ==
        "MLPLOpt: normalizer_epsilon must be at least 1e-37, got 0");
}

}  // namespace
}  // namespace lopt
