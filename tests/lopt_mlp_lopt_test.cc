#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/key.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/rules/learnable.h"
#include "tests/known_lopt.h"
#include "tests/reference/mlp_lopt_reference.h"

namespace lopt {
namespace {

TEST_CASE("MLPLOpt has 1762 weights, named as in the field's files") {
  const Layout theta = MLPLOpt().theta_layout();
  CHECK(theta == Layout({{"mlp/linear_0/w", {19, 32}},
                         {"mlp/linear_0/b", {32}},
                         {"mlp/linear_1/w", {32, 32}},
                         {"mlp/linear_1/b", {32}},
                         {"mlp/linear_2/w", {32, 2}},
                         {"mlp/linear_2/b", {2}}}));
  CHECK(theta.size() == 1762);
}

TEST_CASE("MLPLOpt's state keeps six momenta per element in blocks of sixteen") {
  const Layout params({{"w", {5, 7}}, {"none", {0, 4}}, {"b", {16}}, {"s", {}}});
  CHECK(MLPLOpt().StateLayout(params) == Layout({{"momenta/w", {3, 6, 16}},
                                                 {"momenta/none", {0, 6, 16}},
                                                 {"momenta/b", {1, 6, 16}},
                                                 {"momenta/s", {1, 6, 16}}}));
}

TEST_CASE(
    "initial weights are normal, truncated at two deviations and divided by the root of the "
    "inputs") {
  const MLPLOpt optimizer({.hidden_size = 52632, .hidden_layers = 1});
  const Eigen::VectorXf theta = optimizer.InitTheta(KeyFromSeed(7));
  const LayoutEntry& w = optimizer.theta_layout().Find("mlp/linear_0/w");
  REQUIRE(w.size == 1'000'008);
  double sum = 0;
  double squares = 0;
  double largest = 0;
  for (const float x : AsSpan(theta).subspan(w.offset, w.size)) {
    sum += x;
    squares += double{x} * x;
    largest = std::max(largest, std::abs(double{x}));
  }
  const auto n = static_cast<double>(w.size);
  const double deviation = 0.8796256610342398 / std::sqrt(19.0);
  CHECK(std::abs(sum / n) <= 4 * deviation / std::sqrt(n));
  CHECK(std::sqrt(squares / n) == doctest::Approx(deviation).epsilon(.003));
  CHECK(largest <= .45884);
  CHECK(largest >= .458);
  for (const char* name : {"mlp/linear_0/b", "mlp/linear_1/b"}) {
    const LayoutEntry& b = optimizer.theta_layout().Find(name);
    CHECK(theta.segment(b.offset, b.size).cwiseAbs().maxCoeff() == 0);
  }
}

TEST_CASE("the time features are tanh(t / tau - 1)") {
  const double at_one[] = {0,          -.58278295, -.71629787, -.74723582, -.75736232, -.76019068,
                           -.76117386, -.76145413, -.76155216, -.76158016, -.76158990};
  for (const auto& both : BothMLPLOpts({.hidden_size = 1, .hidden_layers = 1, .step_mult = 1})) {
    const MLPLOpt& optimizer = *both;
    for (int k = 0; k < MLPLOpt::kTimes; ++k) {
      // One hidden unit holds the feature plus 2, the first output takes the 2 away again.
      std::vector<float> theta(static_cast<size_t>(optimizer.theta_layout().size()));
      theta[MLPLOpt::kNormalized + k] = 1;
      theta[19] = 2;
      theta[20] = 1;
      theta[22] = -2;
      const auto rule = optimizer.Bind(Layout({{"x", {1}}}), theta);
      std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
      const std::vector<float> gradient = {0};
      Workspace scratch;
      const auto feature = [&](int64_t step) {
        std::vector<float> x = {0};
        rule->Update({.step = step}, gradient, x, state, scratch);
        return -double{x[0]};
      };
      CHECK(std::abs(feature(0) - -.7615941559557649) <= 1e-6);
      CHECK(std::abs(feature(1) - at_one[k]) <= 1e-6);
      for (const int64_t step : {2, 37, 10000, 1000000}) {
        const double wanted = std::tanh(static_cast<double>(step) / MLPLOpt::kTimeScales[k] - 1);
        CHECK(std::abs(feature(step) - wanted) <= 1e-6);
      }
    }
  }
}

TEST_CASE("MLPLOpt takes the known steps") {
  const std::array<double, 10> after_one = {
      -.20002693654967377, -.10002100744389088, -1.7248756704902282e-05, .09998822049517446,
      .19997967293879013,  .29996989717195793,  .29997084597208484,      -.10002010844516324,
      .04998739757283988,  .6999822939725837};
  for (const auto& both : BothMLPLOpts({})) {
    const MLPLOpt& optimizer = *both;
    const auto rule = optimizer.Bind(KnownParamsLayout(), KnownTheta(optimizer.theta_layout()));
    const std::vector<float> one = TrainKnownParams(*rule, 1);
    for (size_t i = 0; i < one.size(); ++i) CHECK(std::abs(one[i] - after_one[i]) <= 2e-7);
    const std::vector<float> five = TrainKnownParams(*rule, 5);
    CHECK(std::abs(five[0] - -.20010587472358515) <= 2e-7);
    CHECK(std::abs(five[5] - .29989898800040915) <= 2e-7);
    CHECK(std::abs(five[8] - .050096742419914034) <= 2e-7);
    CHECK(std::abs(five[9] - .700041423514143) <= 2e-7);
  }
}

// The network in double on the 19 features as they are, nothing folded: the two outputs.
std::array<double, 2> Network(const Layout& layout, std::span<const float> theta,
                              std::vector<double> x) {
  for (size_t n = 0; n < layout.entries().size(); n += 2) {
    const LayoutEntry& w = layout.entries()[n];
    const LayoutEntry& b = layout.entries()[n + 1];
    std::vector<double> y(static_cast<size_t>(b.size));
    for (int64_t j = 0; j < b.size; ++j) {
      y[j] = theta[b.offset + j];
      for (int64_t i = 0; i < w.shape[0]; ++i) y[j] += x[i] * theta[w.offset + i * b.size + j];
      if (n + 2 < layout.entries().size()) y[j] = std::max(y[j], 0.0);
    }
    x = y;
  }
  return {x[0], x[1]};
}

TEST_CASE("time features and scales may be folded into the first layer") {
  const MLPLOptOptions options = {.step_mult = 1};
  const int64_t size = 77;
  for (const auto& both : BothMLPLOpts(options)) {
    const MLPLOpt& optimizer = *both;
    const std::vector<float> theta = KnownTheta(optimizer.theta_layout());
    const auto rule = optimizer.Bind(Layout({{"x", {7, 11}}}), theta);
    for (const int64_t step : {0, 1, 37, 10000}) {
      // Small params beside large steps, so that the difference of the params shows the step.
      std::vector<float> p(size);
      std::vector<float> g(size);
      Normal(KeyFromSeed(1), p);
      Normal(KeyFromSeed(2), g);
      for (float& x : p) x *= 1e-4f;
      std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
      std::vector<float> after = p;
      Workspace scratch;
      rule->Update({.step = step}, g, after, state, scratch);

      std::vector<std::vector<double>> x(size, std::vector<double>(19));
      for (int64_t i = 0; i < size; ++i) {
        x[i][0] = g[i];
        x[i][1] = p[i];
        for (int k = 0; k < 6; ++k) x[i][2 + k] = (1.0f - MLPLOpt::kDecays[k]) * double{g[i]};
      }
      for (int k = 0; k < 8; ++k) {
        double squares = 0;
        for (const auto& features : x) squares += features[k] * features[k];
        for (auto& features : x) features[k] /= std::sqrt(1e-5 + squares / size);
      }
      // 6e-8: rounding of sums of terms of order one.
      std::vector<double> wanted(size);
      for (int64_t i = 0; i < size; ++i) {
        for (int k = 0; k < 11; ++k) {
          x[i][8 + k] = std::tanh(static_cast<double>(step) / MLPLOpt::kTimeScales[k] - 1);
        }
        const auto [direction, magnitude] = Network(optimizer.theta_layout(), theta, x[i]);
        wanted[i] = direction * std::exp(magnitude * 1e-3);
      }
      for (int64_t i = 0; i < size; ++i) {
        CHECK(std::abs((double{p[i]} - after[i]) - wanted[i]) <= 1e-6 * std::abs(wanted[i]) + 6e-8);
      }
    }
  }
}

// The image network 64-32-10 on made-up data, and its loss and gradient.
class KnownNetwork {
 public:
  Layout layout() const {
    return Layout({{"b0", {32}}, {"w0", {64, 32}}, {"b1", {10}}, {"w1", {32, 10}}});
  }
  std::vector<float> Init() const {
    std::vector<float> p(2410);
    for (int i = 0; i < 64; ++i) {
      for (int j = 0; j < 32; ++j)
        p[32 + i * 32 + j] = static_cast<float>(std::sin(1 + .7 * i + 1.3 * j) / 8);
    }
    for (int i = 0; i < 32; ++i) {
      for (int j = 0; j < 10; ++j) {
        p[2090 + i * 10 + j] =
            static_cast<float>(std::sin(3.1 + .7 * i + 1.3 * j) / std::sqrt(32.0));
      }
    }
    return p;
  }
  double Loss(std::span<const float> p, std::span<float> gradient) const {
    std::vector<double> sum(p.size());
    const float* w0 = p.data() + 32;
    const float* b1 = p.data() + 2080;
    const float* w1 = p.data() + 2090;
    double loss = 0;
    for (int b = 0; b < 128; ++b) {
      double x[64], h[32], y[10];
      for (int i = 0; i < 64; ++i) x[i] = .5 + .5 * std::sin(.37 * b + .11 * i * (1 + b % 5));
      for (int j = 0; j < 32; ++j) {
        h[j] = p[j];
        for (int i = 0; i < 64; ++i) h[j] += x[i] * w0[i * 32 + j];
        h[j] = std::max(h[j], 0.0);
      }
      double total = 0;
      for (int c = 0; c < 10; ++c) {
        y[c] = b1[c];
        for (int j = 0; j < 32; ++j) y[c] += h[j] * w1[j * 10 + c];
        total += std::exp(y[c]);
      }
      const int label = 7 * b % 10;
      loss += (std::log(total) - y[label]) / 128;
      double dh[32] = {};
      for (int c = 0; c < 10; ++c) {
        const double dy = (std::exp(y[c]) / total - (c == label ? 1 : 0)) / 128;
        sum[2080 + c] += dy;
        for (int j = 0; j < 32; ++j) {
          sum[2090 + j * 10 + c] += h[j] * dy;
          dh[j] += w1[j * 10 + c] * dy;
        }
      }
      for (int j = 0; j < 32; ++j) {
        if (h[j] == 0) continue;
        sum[j] += dh[j];
        for (int i = 0; i < 64; ++i) sum[32 + i * 32 + j] += x[i] * dh[j];
      }
    }
    std::copy(sum.begin(), sum.end(), gradient.begin());
    return loss;
  }
};

// Losses at steps 0, 1, 2, 5, 10 and 20 of inner training.
std::vector<double> LearningCurve(const UpdateRule& rule) {
  const KnownNetwork network;
  std::vector<float> p = network.Init();
  std::vector<float> gradient(p.size());
  std::vector<float> state(static_cast<size_t>(rule.state_layout().size()));
  rule.InitState({}, p, state);
  Workspace scratch;
  std::vector<double> losses;
  for (int step = 0; step <= 20; ++step) {
    const double loss = network.Loss(p, gradient);
    for (const int listed : {0, 1, 2, 5, 10, 20}) {
      if (step == listed) losses.push_back(loss);
    }
    rule.Update({.step = step}, gradient, p, state, scratch);
  }
  return losses;
}

TEST_CASE("inner training of a small image network follows the known curves") {
  for (const auto& both : BothMLPLOpts({.step_mult = .01})) {
    const MLPLOpt& optimizer = *both;
    const auto rule = optimizer.Bind(KnownNetwork().layout(), KnownTheta(optimizer.theta_layout()));
    const std::vector<double> losses = LearningCurve(*rule);
    const double wanted[] = {2.296112614, 2.296818616, 2.297600278,
                             2.301795643, 2.307488949, 2.309915826};
    for (int i = 0; i < 6; ++i) CHECK(std::abs(losses[i] - wanted[i]) <= 1e-5);
  }
  const LearnableSGD sgd({.learning_rate = .1});
  const std::vector<double> losses =
      LearningCurve(*sgd.Bind(KnownNetwork().layout(), AsSpan(sgd.InitTheta({}))));
  const double wanted[] = {2.296112614, 2.289474352, 2.283115485,
                           2.264637264, 2.234867448, 2.182612072};
  for (int i = 0; i < 6; ++i) CHECK(std::abs(losses[i] - wanted[i]) <= 1e-5);
}

TEST_CASE("the kernel and the reference go on from each other's state") {
  const MLPLOptOptions options = {.step_mult = .1};
  const MLPLOpt fast(options);
  const ReferenceMLPLOpt reference(options);
  const Layout layout({{"w", {5, 9}}, {"b", {3}}});
  const std::vector<float> theta = KnownTheta(fast.theta_layout());
  const auto fast_rule = fast.Bind(layout, theta);
  const auto reference_rule = reference.Bind(layout, theta);
  REQUIRE(fast_rule->state_layout() == reference_rule->state_layout());
  const auto train = [&](const UpdateRule& even, const UpdateRule& odd) {
    std::vector<float> p(static_cast<size_t>(layout.size()));
    Normal(KeyFromSeed(3), p);
    std::vector<float> state(static_cast<size_t>(even.state_layout().size()));
    Workspace scratch;
    for (int step = 0; step < 10; ++step) {
      std::vector<float> gradient(p.size());
      Normal(KeyFromSeed(static_cast<uint64_t>(10 + step)), gradient);
      (step % 2 == 0 ? even : odd).Update({.step = step}, gradient, p, state, scratch);
    }
    return p;
  };
  const std::vector<float> mixed = train(*fast_rule, *reference_rule);
  const std::vector<float> plain = train(*reference_rule, *reference_rule);
  for (size_t i = 0; i < plain.size(); ++i) CHECK(std::abs(mixed[i] - plain[i]) <= 2e-6);
}

}  // namespace
}  // namespace lopt
