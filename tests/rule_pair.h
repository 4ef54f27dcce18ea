#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "count_allocations.h"
#include "lopt/base/eigen.h"
#include "lopt/base/key.h"
#include "lopt/base/parallel.h"
#include "lopt/lopt/learned_optimizer.h"
#include "tests/on_every_isa.h"

namespace lopt {

// Ranks from 0 to 5, ties, sizes around vectors and tiles, lines shorter and longer than a vector.
inline Layout FactoredShapes() {
  return Layout({{"r0", {}},
                 {"r1", {2}},
                 {"v17", {17}},
                 {"v200", {200}},
                 {"one", {1, 1}},
                 {"r2", {3, 5}},
                 {"none", {0, 3}},
                 {"long", {1, 37}},
                 {"tall", {41, 1}},
                 {"square", {16, 16}},
                 {"down", {64, 10}},
                 {"up", {9, 70}},
                 {"r3", {7, 5, 2}},
                 {"tie", {4, 2, 4}},
                 {"conv", {3, 3, 5, 7}},
                 {"inner", {20, 19, 3}},
                 {"r5", {2, 3, 1, 3, 2}}});
}

struct RuleRun {
  std::vector<float> params;
  std::vector<float> state;
};

// The fast implementation of a rule and its oracle under the same weights, a start and a gradient.
struct RulePair {
  static constexpr int64_t kNumSteps = 10000;  // of the run, for rules that ask

  RulePair(const LearnedOptimizer& fast_optimizer, const LearnedOptimizer& reference_optimizer,
           const Layout& layout)
      : layout(layout), theta(fast_optimizer.InitTheta(KeyFromSeed(11))) {
    std::vector<float> noise(theta.size());
    Normal(KeyFromSeed(12), noise);
    for (int64_t i = 0; i < theta.size(); ++i) theta[i] += .05f * noise[i];
    fast = fast_optimizer.Bind(layout, AsSpan(theta));
    reference = reference_optimizer.Bind(layout, AsSpan(theta));
    start.params.resize(layout.size());
    Normal(KeyFromSeed(13), start.params);
    start.state.assign(fast->state_layout().size(), 0.0f);
    gradient.resize(layout.size());
    Normal(KeyFromSeed(14), gradient);
  }

  // Makes the params small beside the steps, so that they show them, and the state that of a run
  // under way.
  void BeginUnderWay(uint64_t updates) {
    for (float& x : start.params) x *= 1e-3f;
    Workspace scratch;
    std::vector<float> forgotten = start.params;
    std::vector<float> other(layout.size());
    for (uint64_t update = 0; update < updates; ++update) {
      Normal(KeyFromSeed(15 + update), other);
      reference->Update({.num_steps = kNumSteps}, other, forgotten, start.state, scratch);
    }
  }

  // Puts a number into a row of params or gradients: everywhere, or in the middle of each tensor.
  void Put(float special, bool everywhere, std::vector<float>* row) const {
    for (const LayoutEntry& entry : layout.entries()) {
      for (int64_t i = 0; i < entry.size; ++i) {
        if (everywhere || i == entry.size / 2) (*row)[entry.offset + i] = special;
      }
    }
  }

  RuleRun After(const UpdateRule& rule, int64_t step) const {
    RuleRun run = start;
    Workspace scratch;
    rule.Update({.step = step, .num_steps = kNumSteps}, gradient, run.params, run.state, scratch);
    return run;
  }

  Layout layout;
  Eigen::VectorXf theta;
  std::unique_ptr<UpdateRule> fast;
  std::unique_ptr<UpdateRule> reference;
  RuleRun start;
  std::vector<float> gradient;
};

// Both NaN, equal (infinities), or within `allowed`.
inline bool Agree(float a, float b, double allowed) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || (std::isfinite(b) && std::abs(double{a} - double{b}) <= allowed);
}

inline void CheckSameBitsForEveryAlignment(const RulePair& pair) {
  const auto size = static_cast<size_t>(pair.layout.size());
  OnEveryIsa([&] {
    const RuleRun first = pair.After(*pair.fast, 5);
    Workspace scratch;
    for (size_t shift = 0; shift < 16; ++shift) {
      std::vector<float> params(size + 16);
      std::vector<float> gradient(size + 16);
      std::vector<float> state(pair.start.state.size() + 16);
      std::ranges::copy(pair.start.params, params.begin() + shift);
      std::ranges::copy(pair.gradient, gradient.begin() + shift / 2);
      std::ranges::copy(pair.start.state, state.begin() + shift / 3);
      pair.fast->Update({.step = 5}, std::span(gradient).subspan(shift / 2, size),
                        std::span(params).subspan(shift, size),
                        std::span(state).subspan(shift / 3, pair.start.state.size()), scratch);
      CHECK(std::memcmp(params.data() + shift, first.params.data(), size * sizeof(float)) == 0);
      CHECK(std::memcmp(state.data() + shift / 3, first.state.data(),
                        first.state.size() * sizeof(float)) == 0);
    }
  });
}

inline void CheckAllocatesNothing(const RulePair& pair) {
  RuleRun run = pair.start;
  OnEveryIsa([&] {
    Workspace scratch;
    pair.fast->Update({.num_steps = RulePair::kNumSteps}, pair.gradient, run.params, run.state,
                      scratch);
    const int64_t before = allocations;
    for (int64_t step = 1; step < 4; ++step) {
      pair.fast->Update({.step = step, .num_steps = RulePair::kNumSteps}, pair.gradient, run.params,
                        run.state, scratch);
    }
    CHECK(allocations == before);
  });
}

inline void CheckSameBitsOnAnyThreads(const RulePair& pair, const RuleRun& wanted, int64_t step) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool(threads).Run([&] {
      const RuleRun run = pair.After(*pair.fast, step);
      CHECK(run.params == wanted.params);
      CHECK(run.state == wanted.state);
    });
  }
}

}  // namespace lopt
