#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/isa.h"
#include "base/key.h"
#include "count_allocations.h"
#include "lopt/celo2.h"

namespace lopt {
namespace {

// Pins each instruction set in turn for `body` and gives back the one that was in use.
template <class Body>
void OnEveryIsa(const Body& body) {
  const std::string pinned = CurrentIsa();
  for (const std::string& isa : SupportedIsas()) {
    CAPTURE(isa);
    PinIsa(isa);
    body();
  }
  PinIsa(pinned);
}

// Ranks 0 to 5; more rows than columns and fewer; rows of whole vectors, with a rest and of one
// element; every place of the largest two axes among three; ties; tensors without elements.
Layout OddLayout() {
  return Layout({{"none", {0, 3}},
                 {"r0", {}},
                 {"none_either", {2, 0, 4}},
                 {"r1_one", {1}},
                 {"r1", {37}},
                 {"v0", {0}},
                 {"one", {1, 1}},
                 {"row", {1, 35}},
                 {"column", {21, 1}},
                 {"tall", {19, 5}},
                 {"wide", {5, 19}},
                 {"whole", {16, 32}},
                 {"square", {17, 17}},
                 {"r3", {2, 17, 3}},
                 {"r3_inner", {5, 3, 2}},
                 {"r3_down", {7, 5, 2}},
                 {"r3_tie", {4, 2, 4}},
                 {"r3_around", {18, 2, 20}},
                 {"r4", {3, 3, 5, 7}},
                 {"r4_ties", {3, 3, 2, 2}},
                 {"r4_ones", {6, 1, 5, 1}},
                 {"r5", {2, 3, 2, 2, 3}}});
}

struct Run {
  std::vector<float> params;
  std::vector<float> state;
};

struct Pair {
  Pair(const Layout& layout, bool orthogonal, OneD one_d = OneD::kLearned) : layout(layout) {
    const auto bind = [&](Celo2::Implementation implementation) {
      const Celo2Options options = {.learning_rate = 0.1, .weight_decay = 0.3, .one_d = one_d};
      std::unique_ptr<LearnedOptimizer> optimizer;
      if (orthogonal) {
        optimizer = std::make_unique<Celo2>(options, implementation);
      } else {
        optimizer = std::make_unique<Celo2Base>(
            Celo2BaseOptions{.learning_rate = 0.1, .weight_decay = 0.3}, implementation);
      }
      const Eigen::VectorXf initial = optimizer->InitTheta(KeyFromSeed(11));
      std::vector<float> theta(initial.size());
      Normal(KeyFromSeed(12), theta);
      for (size_t i = 0; i < theta.size(); ++i) theta[i] = initial[i] + 0.05F * theta[i];
      return optimizer->Bind(layout, theta);
    };
    fast = bind(Celo2::Implementation::kFast);
    reference = bind(Celo2::Implementation::kReference);
    start.params.resize(layout.size());
    Normal(KeyFromSeed(13), start.params);
    start.state.assign(fast->state_layout().size(), 0.0F);
    gradient.resize(layout.size());
    Normal(KeyFromSeed(14), gradient);
    for (float& g : gradient) g *= 300;  // some are clipped
  }

  // After three updates along the gradient, then against it, then along twice it.
  Run After(const UpdateRule& rule) const {
    Run run = start;
    Workspace scratch;
    for (int64_t step = 0; step < 3; ++step) {
      std::vector<float> g = gradient;
      for (float& x : g) x *= step == 1 ? -0.01F : static_cast<float>(1 + step);
      rule.Update({.step = step}, g, run.params, run.state, scratch);
    }
    return run;
  }

  Layout layout;
  std::unique_ptr<UpdateRule> fast;
  std::unique_ptr<UpdateRule> reference;
  Run start;
  std::vector<float> gradient;
};

bool Agree(float a, float b, double allowed) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(double{a} - double{b}) <= allowed;
}

// Names of the params and parts of the state that differ. A step is of order 0.1 in every element,
// of which three rounded networks and iterations may lose 2e-5; a moment, 3e-6 of itself.
std::string Differing(const Pair& pair, const Run& run, const Run& oracle) {
  std::string names;
  for (const LayoutEntry& entry : pair.layout.entries()) {
    bool same = true;
    for (int64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
      same = same && Agree(run.params[i], oracle.params[i], 6e-6 + 1e-6 * std::abs(run.params[i]));
    }
    if (!same) names += entry.name + " ";
  }
  for (const LayoutEntry& entry : pair.fast->state_layout().entries()) {
    double largest = 0;
    for (int64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
      largest = std::max(largest, std::abs(double{oracle.state[i]}));
    }
    bool same = true;
    for (int64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
      same = same && Agree(run.state[i], oracle.state[i], 1e-6 * largest);
    }
    if (!same) names += entry.name + " ";
  }
  return names;
}

TEST_CASE("the kernel of Celo2 agrees with the reference for every shape and instruction set") {
  for (const bool orthogonal : {false, true}) {
    CAPTURE(orthogonal);
    const Pair pair(OddLayout(), orthogonal);
    const Run oracle = pair.After(*pair.reference);
    OnEveryIsa([&] { CHECK(Differing(pair, pair.After(*pair.fast), oracle) == ""); });
  }
}

TEST_CASE("the kernel of Celo2 agrees with the reference on matrices of several tiles and panels") {
  const Pair pair(Layout({{"wide", {70, 301}}, {"tall", {300, 67}}, {"conv", {2, 2, 30, 50}}}),
                  true);
  const Run oracle = pair.After(*pair.reference);
  OnEveryIsa([&] { CHECK(Differing(pair, pair.After(*pair.fast), oracle) == ""); });
}

TEST_CASE(
    "the kernel of Celo2 agrees with the reference on zeros, huge numbers, infinity and NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Layout layout({{"b", {5}}, {"tall", {19, 5}}, {"r3", {2, 17, 3}}});
  for (const float special : {0.0F, 1e-20F, 1e-40F, 1e30F, -infinity, infinity, nan}) {
    for (const bool everywhere : {false, true}) {
      CAPTURE(special);
      CAPTURE(everywhere);
      Pair pair(layout, true);
      for (const LayoutEntry& entry : layout.entries()) {
        for (int64_t i = 0; i < entry.size; ++i) {
          if (everywhere || i == entry.size / 2) pair.gradient[entry.offset + i] = special;
        }
      }
      const Run oracle = pair.After(*pair.reference);
      OnEveryIsa([&] { CHECK(Differing(pair, pair.After(*pair.fast), oracle) == ""); });
    }
  }
}

TEST_CASE("an update of Celo2 gives the same bits on every call and for every alignment") {
  const Pair pair(OddLayout(), true);
  const auto size = static_cast<size_t>(pair.layout.size());
  OnEveryIsa([&] {
    Run first = pair.start;
    Workspace scratch;
    pair.fast->Update({.step = 5}, pair.gradient, first.params, first.state, scratch);
    for (size_t shift = 0; shift < 16; ++shift) {
      std::vector<float> params(size + 16);
      std::vector<float> gradient(size + 16);
      std::vector<float> state(pair.start.state.size() + 16);
      std::ranges::copy(pair.start.params, params.begin() + shift);
      std::ranges::copy(pair.gradient, gradient.begin() + shift / 2);
      pair.fast->Update({.step = 5}, std::span(gradient).subspan(shift / 2, size),
                        std::span(params).subspan(shift, size),
                        std::span(state).subspan(shift / 3, pair.start.state.size()), scratch);
      CHECK(std::memcmp(params.data() + shift, first.params.data(), size * sizeof(float)) == 0);
      CHECK(std::memcmp(state.data() + shift / 3, first.state.data(),
                        first.state.size() * sizeof(float)) == 0);
    }
  });
}

TEST_CASE("an update of Celo2 does not allocate once its workspace has grown") {
  for (const OneD one_d : {OneD::kAdam, OneD::kAdamW, OneD::kLearned}) {
    const Pair pair(OddLayout(), true, one_d);
    Run run = pair.start;
    OnEveryIsa([&] {
      Workspace scratch;
      pair.fast->Update({.step = 0}, pair.gradient, run.params, run.state, scratch);
      const int64_t before = allocations;
      for (int64_t step = 1; step < 4; ++step) {
        pair.fast->Update({.step = step}, pair.gradient, run.params, run.state, scratch);
      }
      CHECK(allocations == before);
    });
  }
}

}  // namespace
}  // namespace lopt
