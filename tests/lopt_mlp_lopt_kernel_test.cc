#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "tests/reference/mlp_lopt_reference.h"
#include "tests/rule_pair.h"

namespace lopt {
namespace {

// Sizes around the block of 16 and ranks from 0 to 5; most tensors are not aligned.
Layout OddLayout() {
  return Layout({{"r0", {}},
                 {"r1", {2}},
                 {"r2", {3, 5}},
                 {"none", {0, 3}},
                 {"r3", {2, 2, 4}},
                 {"r4", {17, 1, 1, 1}},
                 {"r5", {1, 31, 1, 1, 1}},
                 {"v48", {48}},
                 {"r2410", {241, 10}}});
}

// A run under way, with momenta of any sign.
struct Pair : RulePair {
  Pair(int64_t hidden_size, int64_t hidden_layers, const Layout& layout, double exp_mult = 1e-3)
      : Pair({.hidden_size = hidden_size,
              .hidden_layers = hidden_layers,
              .exp_mult = exp_mult,
              .step_mult = 1},
             layout) {}
  Pair(const MLPLOptOptions& options, const Layout& layout)
      : RulePair(MLPLOpt(options), ReferenceMLPLOpt(options), layout) {
    BeginUnderWay(1);
  }
};

// The number of elements in which the run differs from the oracle's. A step may differ by 1e-6 of
// itself plus 5e-7 (the rounding of sums whose terms are of order one and may cancel), a momentum
// by 1.2e-7 of its two terms.
int64_t Disagreements(const Pair& pair, const RuleRun& run, const RuleRun& oracle) {
  int64_t wrong = 0;
  for (size_t n = 0; n < pair.layout.entries().size(); ++n) {
    const LayoutEntry& entry = pair.layout.entries()[n];
    for (int64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
      const double step = oracle.params[i] - pair.start.params[i];
      const double allowed = 5e-7 + (std::isfinite(step) ? 1e-6 * std::abs(step) : 0);
      const double rounding = 1.2e-7 * std::abs(double{oracle.params[i]});
      if (!Agree(run.params[i], oracle.params[i], rounding + allowed)) ++wrong;
    }
    const LayoutEntry& momenta = pair.fast->state_layout().entries()[n];
    for (int64_t i = 0; i < momenta.size; ++i) {
      const int64_t element = i / 96 * 16 + i % 16;
      const int64_t at = momenta.offset + i;
      if (element >= entry.size) {
        if (run.state[at] != 0) ++wrong;
        continue;
      }
      const double terms = std::abs(double{pair.start.state[at]}) +
                           std::abs(double{pair.gradient[entry.offset + element]});
      if (!Agree(run.state[at], oracle.state[at], 1.2e-7 * terms + 1e-44)) ++wrong;
    }
  }
  return wrong;
}

TEST_CASE(
    "the kernel agrees with the reference for every width, depth, shape and instruction set") {
  for (const int64_t hidden_size : {1, 2, 4, 8, 16, 31, 32, 33, 64}) {
    for (const int64_t hidden_layers : {1, 2, 3, 4}) {
      CAPTURE(hidden_size);
      CAPTURE(hidden_layers);
      const Pair pair(hidden_size, hidden_layers, OddLayout());
      const RuleRun oracle = pair.After(*pair.reference, 37);
      OnEveryIsa([&] { CHECK(Disagreements(pair, pair.After(*pair.fast, 37), oracle) == 0); });
    }
  }
}

TEST_CASE("the kernel agrees with the reference where exponentials are ordinary, infinite and 0") {
  for (const int64_t hidden_size : {4, 8, 32}) {
    for (const double exp_mult : {0.3, 1.0, 30.0, 300.0, 3000.0}) {
      CAPTURE(hidden_size);
      CAPTURE(exp_mult);
      const Pair pair(hidden_size, 2, OddLayout(), exp_mult);
      const RuleRun oracle = pair.After(*pair.reference, 37);
      OnEveryIsa([&] {
        const RuleRun run = pair.After(*pair.fast, 37);
        int64_t wrong = 0;
        for (size_t i = 0; i < run.params.size(); ++i) {
          // Outputs may differ by 5e-7.
          const double allowed = (1e-6 + 1e-6 * exp_mult) * std::abs(double{oracle.params[i]});
          wrong += Agree(run.params[i], oracle.params[i], allowed + 1e-6) ? 0 : 1;
        }
        CHECK(wrong == 0);
      });
    }
  }
}

TEST_CASE("the kernel agrees with the reference on a large tensor") {
  const Pair pair(32, 2, Layout({{"large", {100003}}}));
  const RuleRun oracle = pair.After(*pair.reference, 1000);
  OnEveryIsa([&] { CHECK(Disagreements(pair, pair.After(*pair.fast, 1000), oracle) == 0); });
}

TEST_CASE(
    "the kernel agrees with the reference on zeros, denormals, huge numbers, infinity and NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t hidden_size : {4, 31, 32}) {
    Pair pair(hidden_size, 2, OddLayout());
    const std::vector<float> gradient = pair.gradient;
    const RuleRun start = pair.start;
    for (const float special : {0.0f, 1e-40f, 1e-45f, 1e18f, 1e30f, -1e30f, infinity, nan}) {
      for (const bool everywhere : {false, true}) {
        for (const bool in_params : {false, true}) {
          CAPTURE(hidden_size);
          CAPTURE(special);
          CAPTURE(everywhere);
          CAPTURE(in_params);
          pair.gradient = gradient;
          pair.start = start;
          pair.Put(special, everywhere, in_params ? &pair.start.params : &pair.gradient);
          const RuleRun oracle = pair.After(*pair.reference, 3);
          OnEveryIsa([&] { CHECK(Disagreements(pair, pair.After(*pair.fast, 3), oracle) == 0); });
        }
      }
    }
  }
}

TEST_CASE("one NaN gradient poisons all params of its tensor, its own momenta and nothing else") {
  const Layout layout({{"a", {50}}, {"b", {50}}});
  Pair pair(32, 2, layout);
  pair.gradient[53] = std::numeric_limits<float>::quiet_NaN();
  OnEveryIsa([&] {
    const RuleRun run = pair.After(*pair.fast, 3);
    for (int64_t i = 0; i < 100; ++i) CHECK(std::isnan(run.params[i]) == (i >= 50));
    const auto nans =
        std::count_if(run.state.begin(), run.state.end(), [](float x) { return std::isnan(x); });
    CHECK(nans == 6);
  });
}

TEST_CASE("hidden units that are not there stay out of sums that overflow") {
  // Weights so large that the second hidden layer is infinite: a padded unit would turn that into
  // NaN.
  const MLPLOptOptions options = {.hidden_size = 3, .hidden_layers = 3, .step_mult = 1};
  const MLPLOpt fast(options);
  const ReferenceMLPLOpt reference(options);
  std::vector<float> theta(static_cast<size_t>(fast.theta_layout().size()), 0.0f);
  for (const LayoutEntry& entry : fast.theta_layout().entries()) {
    std::fill_n(theta.begin() + entry.offset, entry.size, entry.shape.size() == 2 ? 1e20f : 1.0f);
  }
  const LayoutEntry& last = fast.theta_layout().Find("mlp/linear_3/w");
  for (int64_t i = 0; i < last.size; ++i) theta[last.offset + i] = i % 2 == 0 ? 1.0f : 0.5f;
  const Layout layout({{"x", {50}}});
  const std::vector<float> gradient(50, 1.0f);
  const auto after = [&](const LearnedOptimizer& optimizer) {
    const auto rule = optimizer.Bind(layout, theta);
    std::vector<float> params(50, 1.0f);
    std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
    Workspace scratch;
    rule->Update({.step = 1000000}, gradient, params, state, scratch);
    return params;
  };
  const std::vector<float> oracle = after(reference);
  REQUIRE(oracle[0] == -std::numeric_limits<float>::infinity());
  OnEveryIsa([&] { CHECK(after(fast) == oracle); });
}

TEST_CASE("the kernel gives the same bits on every call and for every alignment") {
  CheckSameBitsForEveryAlignment(Pair(32, 2, OddLayout()));
}

TEST_CASE("an update does not allocate once its workspace has grown") {
  CheckAllocatesNothing(Pair(33, 3, OddLayout()));
  for (const int hidden : {2, 9}) CheckAllocatesNothing(Pair(hidden, 1, Layout({{"w", {70000}}})));
}

TEST_CASE("A large tensor is normalised as exactly as a small one") {
  // All elements are alike, so one shows the scales. Sums in float32 alone were off by up to 1e-2.
  const Layout layout({{"w", {(int64_t{1} << 22) + 7}}});
  const Pair pair(2, 1, layout);
  RuleRun one = pair.start;
  std::fill(one.params.begin(), one.params.end(), 0.1F);
  std::fill(one.state.begin(), one.state.end(), 0.0F);
  const std::vector<float> gradient(one.params.size(), 0.7F);
  OnEveryIsa([&] {
    RuleRun run = one;
    Workspace scratch;
    pair.fast->Update({.step = 0}, gradient, run.params, run.state, scratch);
    const Layout small({{"w", {64}}});
    RuleRun few{.params = std::vector<float>(64, 0.1F), .state = std::vector<float>(6 * 64, 0.0F)};
    Pair(2, 1, small)
        .fast->Update({.step = 0}, std::span(gradient).first(64), few.params, few.state, scratch);
    const double step = double{few.params[0]} - 0.1F;
    CHECK(std::abs(step) > 0.05);
    CHECK(std::abs(run.params[0] - double{few.params[0]}) < 5e-5 * std::abs(step));
    CHECK(run.params[run.params.size() - 20] == run.params[0]);
    CHECK(std::abs(run.params.back() - double{few.params[0]}) < 5e-5 * std::abs(step));
  });
}

TEST_CASE("A tensor of several pieces has the same bits on any number of threads") {
  const Layout layout({{"a", {5}},
                       {"w", {3, 70000}},
                       {"b", {65536}},
                       {"c", {65537}},
                       {"d", {9216}},
                       {"e", {9221}}});
  const Pair pair(5, 2, layout);
  const RuleRun wanted = pair.After(*pair.fast, 3);
  CHECK(Disagreements(pair, wanted, pair.After(*pair.reference, 3)) == 0);
  CheckSameBitsOnAnyThreads(pair, wanted, 3);
}

}  // namespace
}  // namespace lopt
