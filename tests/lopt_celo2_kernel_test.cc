#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lopt/lopt/celo2/celo2.h"
#include "tests/reference/celo2_reference.h"
#include "tests/rule_pair.h"

namespace lopt {
namespace {

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

// Celo2, or Celo2Base, or their references.
template <class WithNewtonSchulz, class Base>
std::unique_ptr<LearnedOptimizer> MakeCelo2(bool orthogonal, OneD one_d) {
  if (!orthogonal) {
    return std::make_unique<Base>(Celo2BaseOptions{.learning_rate = 0.1, .weight_decay = 0.3});
  }
  return std::make_unique<WithNewtonSchulz>(
      Celo2Options{.learning_rate = 0.1, .weight_decay = 0.3, .one_d = one_d});
}

struct Pair : RulePair {
  Pair(const Layout& layout, bool orthogonal, OneD one_d = OneD::kLearned)
      : RulePair(*MakeCelo2<Celo2, Celo2Base>(orthogonal, one_d),
                 *MakeCelo2<ReferenceCelo2, ReferenceCelo2Base>(orthogonal, one_d), layout) {
    for (float& g : gradient) g *= 300;  // some are clipped
  }

  // After three updates along the gradient, then against it, then along twice it.
  RuleRun AfterThree(const UpdateRule& rule) const {
    RuleRun run = start;
    Workspace scratch;
    for (int64_t step = 0; step < 3; ++step) {
      std::vector<float> g = gradient;
      for (float& x : g) x *= step == 1 ? -0.01F : static_cast<float>(1 + step);
      rule.Update({.step = step}, g, run.params, run.state, scratch);
    }
    return run;
  }
};

// Names of the params and parts of the state that differ. A step is of order 0.1 in every element,
// of which three rounded networks and iterations may lose 2e-5; a moment, 3e-6 of itself.
std::string Differing(const Pair& pair, const RuleRun& run, const RuleRun& oracle) {
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
    const RuleRun oracle = pair.AfterThree(*pair.reference);
    OnEveryIsa([&] { CHECK(Differing(pair, pair.AfterThree(*pair.fast), oracle) == ""); });
  }
}

TEST_CASE("the kernel of Celo2 agrees with the reference on matrices of several tiles and panels") {
  const Pair pair(Layout({{"wide", {70, 301}}, {"tall", {300, 67}}, {"conv", {2, 2, 30, 50}}}),
                  true);
  const RuleRun oracle = pair.AfterThree(*pair.reference);
  OnEveryIsa([&] { CHECK(Differing(pair, pair.AfterThree(*pair.fast), oracle) == ""); });
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
      pair.Put(special, everywhere, &pair.gradient);
      const RuleRun oracle = pair.AfterThree(*pair.reference);
      OnEveryIsa([&] { CHECK(Differing(pair, pair.AfterThree(*pair.fast), oracle) == ""); });
    }
  }
}

TEST_CASE("an update of Celo2 gives the same bits on every call and for every alignment") {
  CheckSameBitsForEveryAlignment(Pair(OddLayout(), true));
}

// The params of a vector of `size` elements, which are alike but for every other gradient, after an
// update.
std::vector<float> AfterOneUpdate(int64_t size) {
  const Pair pair(Layout({{"w", {size}}}), false);
  std::vector<float> params(static_cast<size_t>(size), 0.1F);
  std::vector<float> gradient(params.size(), 0.7F);
  for (size_t i = 1; i < gradient.size(); i += 2) gradient[i] = -0.03F;
  std::vector<float> state(pair.start.state.size(), 0.0F);
  Workspace scratch;
  pair.fast->Update({.step = 0, .num_steps = RulePair::kNumSteps}, gradient, params, state,
                    scratch);
  return params;
}

TEST_CASE("Celo2 normalises a long row as exactly as a short one") {
  OnEveryIsa([&] {
    const std::vector<float> few = AfterOneUpdate(64);
    const std::vector<float> many = AfterOneUpdate(int64_t{1} << 20);
    for (const size_t i : {0, 1}) {
      const double step = double{few[i]} - 0.1F;
      CHECK(std::abs(many[i] - double{few[i]}) < 1e-4 * std::abs(step));
    }
  });
}

TEST_CASE("an update of Celo2 does not allocate once its workspace has grown") {
  for (const OneD one_d : {OneD::kAdam, OneD::kAdamW, OneD::kLearned}) {
    CheckAllocatesNothing(Pair(OddLayout(), true, one_d));
  }
}

}  // namespace
}  // namespace lopt
