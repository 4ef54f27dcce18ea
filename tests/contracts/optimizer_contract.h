#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/eigen.h"
#include "base/key.h"
#include "base/parallel.h"
#include "lopt/learned_optimizer.h"
#include "tests/contracts/check.h"

namespace lopt::contracts {

// What every LearnedOptimizer and its UpdateRules promise (lopt/learned_optimizer.h). Failures name
// no optimizer: the caller does, with INFO.

// Tensors of ranks 0 to 4, around the widths of vector registers, and an empty one.
inline std::vector<Layout> ParamsLayouts() {
  return {Layout({{"scalar", Shape{}}}), Layout({{"bias", {17}}}),
          Layout({{"scalar", {}},
                  {"vector", {7}},
                  {"matrix", {5, 3}},
                  {"cube", {2, 3, 3}},
                  {"kernel", {2, 1, 3, 3}},
                  {"empty", {0, 4}},
                  {"row", {1, 16}},
                  {"long", {33}}})};
}

// An optimizer's theta near its initial one.
inline std::vector<float> DrawTheta(const LearnedOptimizer& optimizer, uint64_t seed) {
  const Eigen::VectorXf initial = optimizer.InitTheta(KeyFromSeed(seed));
  std::vector<float> theta(initial.begin(), initial.end());
  std::vector<float> noise(theta.size());
  Normal(FoldIn(KeyFromSeed(seed), 1), noise);
  for (size_t i = 0; i < theta.size(); ++i) theta[i] += 0.05F * noise[i];
  return theta;
}

// Steps of the runs below, of which each makes the first few.
inline constexpr int64_t kRunLength = 100;

// Params under training: all that an optimizer may know between two updates.
struct Training {
  std::vector<float> params;
  std::vector<float> state;
};

inline Training StartTraining(const UpdateRule& rule, uint64_t seed, float garbage = kNaN) {
  Training training{std::vector<float>(rule.params_layout().size()),
                    std::vector<float>(rule.state_layout().size(), garbage)};
  Normal(KeyFromSeed(seed), training.params);
  rule.InitState({}, training.params, training.state);
  return training;
}

inline bool SameBits(const Training& a, const Training& b) {
  return SameBits(a.params, b.params) && SameBits(a.state, b.state);
}

// Updates [first, last) along gradients of seed `seed`.
inline void Train(const UpdateRule& rule, uint64_t seed, int64_t first, int64_t last,
                  std::span<float> params, std::span<float> state, float garbage = kNaN) {
  std::vector<float> gradient(params.size());
  Workspace scratch;
  for (int64_t step = first; step < last; ++step) {
    const Key key = FoldIn(KeyFromSeed(seed), static_cast<uint64_t>(step));
    Normal(key, gradient);
    Dirty(scratch, garbage);
    rule.Update({.step = step,
                 .num_steps = kRunLength,
                 .loss = 1 / (1 + static_cast<float>(step)),
                 .key = key},
                gradient, params, state, scratch);
  }
}

inline void CheckInitTheta(const LearnedOptimizer& optimizer) {
  const Eigen::VectorXf theta = optimizer.InitTheta(KeyFromSeed(1));
  CHECK(theta.size() == optimizer.theta_layout().size());
  CHECK(theta.size() >= 1);
  CHECK(AllFinite(theta));
  CHECK(SameBits(theta, optimizer.InitTheta(KeyFromSeed(1))));
}

inline void CheckLayouts(const LearnedOptimizer& optimizer) {
  for (const Layout& params : ParamsLayouts()) {
    const auto rule = optimizer.Bind(params, DrawTheta(optimizer, 1));
    CHECK(rule->params_layout() == params);
    CHECK(rule->state_layout() == optimizer.StateLayout(params));
  }
}

inline void CheckWrongSizesOfOptimizersThrow(const LearnedOptimizer& optimizer) {
  const Layout layout = ParamsLayouts().back();
  std::vector<float> theta = DrawTheta(optimizer, 1);
  const auto rule = optimizer.Bind(layout, theta);
  theta.emplace_back();
  CheckThrows("theta", [&] { optimizer.Bind(layout, theta); });
  theta.resize(theta.size() - 2);
  CheckThrows("theta", [&] { optimizer.Bind(layout, theta); });

  std::vector<float> gradient(layout.size());
  Training good = StartTraining(*rule, 1);
  const auto expect = [&](const char* span, const auto& spoil) {
    std::vector<float> g = gradient;
    Training t = good;
    spoil(g, t);
    Workspace scratch;
    CheckThrows(span, [&] { rule->Update({}, g, t.params, t.state, scratch); });
  };
  expect("gradient", [](auto& g, auto&) { g.emplace_back(); });
  expect("gradient", [](auto& g, auto&) { g.clear(); });
  expect("params", [](auto&, auto& t) { t.params.pop_back(); });
  expect("state", [](auto&, auto& t) { t.state.emplace_back(); });
  std::vector<float> longer = good.params;
  longer.emplace_back();
  CheckThrows("params", [&] { rule->InitState({}, longer, good.state); });
  good.state.emplace_back();
  CheckThrows("state", [&] { rule->InitState({}, good.params, good.state); });
}

// Params and state are all there is: a rule bound anew goes on from a copy of them.
inline void CheckTrainingResumes(const LearnedOptimizer& optimizer) {
  for (const Layout& layout : ParamsLayouts()) {
    const std::vector<float> theta = DrawTheta(optimizer, 2);
    const auto rule = optimizer.Bind(layout, theta);
    Training whole = StartTraining(*rule, 3);
    Training saved = StartTraining(*rule, 3, 7);
    CHECK(SameBits(whole, saved));
    Train(*rule, 4, 0, 10, whole.params, whole.state);
    Train(*rule, 4, 0, 5, saved.params, saved.state, 7);
    Training resumed = saved;
    Train(*rule, 99, 5, 8, saved.params, saved.state);  // something else in between
    Train(*optimizer.Bind(layout, theta), 4, 5, 10, resumed.params, resumed.state);
    CHECK(SameBits(whole, resumed));
    CHECK(AllFinite(whole.params));
    CHECK(AllFinite(whole.state));
    CHECK_FALSE(SameBits(whole.params, StartTraining(*rule, 3).params));
  }
}

inline void CheckThetaMatters(const LearnedOptimizer& optimizer) {
  const Layout layout = ParamsLayouts().back();
  const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 1));
  const auto other = optimizer.Bind(layout, DrawTheta(optimizer, 2));
  Training a = StartTraining(*rule, 1);
  Training b = StartTraining(*other, 1, 7);
  CHECK(SameBits(a.params, b.params));
  Train(*rule, 1, 0, 3, a.params, a.state);
  Train(*other, 1, 0, 3, b.params, b.state);
  CHECK_FALSE(SameBits(a.params, b.params));
}

inline void CheckAlignmentDoesNotMatter(const LearnedOptimizer& optimizer) {
  for (const Layout& layout : ParamsLayouts()) {
    const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 1));
    Training aligned = StartTraining(*rule, 5);
    for (const size_t shift : {1, 3}) {
      const auto shifted = [&](const std::vector<float>& values) {
        std::vector<float> moved(shift, kNaN);
        moved.insert(moved.end(), values.begin(), values.end());
        moved.emplace_back(kNaN);
        return moved;
      };
      std::vector<float> params = shifted(aligned.params);
      std::vector<float> state = shifted(aligned.state);
      const std::span params_part = std::span(params).subspan(shift, aligned.params.size());
      const std::span state_part = std::span(state).subspan(shift, aligned.state.size());
      Training expected = aligned;
      Train(*rule, 6, 0, 4, expected.params, expected.state);
      Train(*rule, 6, 0, 4, params_part, state_part);
      CHECK(SameBits(expected.params, params_part));
      CHECK(SameBits(expected.state, state_part));
      CHECK(std::isnan(params.back()));
      CHECK(std::isnan(state.back()));
    }
  }
}

inline void CheckThreadsDoNotMatter(const LearnedOptimizer& optimizer) {
  constexpr int64_t kRuns = 24;
  const Layout layout = ParamsLayouts().back();
  const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 1));
  const auto run = [&](int64_t n) {
    const auto seed = static_cast<uint64_t>(n);
    Training training = StartTraining(*rule, seed);
    Train(*rule, seed, 0, 6, training.params, training.state);
    return training;
  };
  std::vector<Training> together(kRuns);
  ThreadPool(8).Run([&] { ParallelFor(kRuns, [&](int64_t n) { together[n] = run(n); }); });
  for (int64_t n = 0; n < kRuns; ++n) {
    CHECK(SameBits(together[n], run(n)));
  }
}

inline void CheckZeroGradientIsHarmless(const LearnedOptimizer& optimizer) {
  for (const Layout& layout : ParamsLayouts()) {
    const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 1));
    for (const float value : {0.0F, 1.0F}) {
      Training training{std::vector<float>(layout.size(), value),
                        std::vector<float>(rule->state_layout().size())};
      const std::vector<float> gradient(layout.size());
      Workspace scratch;
      for (int64_t step = 0; step < 3; ++step) {
        rule->Update({.step = step, .num_steps = kRunLength}, gradient, training.params,
                     training.state, scratch);
      }
      CHECK(AllFinite(training.params));
      CHECK(AllFinite(training.state));
    }
  }
}

// Updates go without the length of the run exactly where the optimizer does not say that it is
// needed.
inline void CheckNeedOfNumSteps(const LearnedOptimizer& optimizer) {
  const Layout layout = ParamsLayouts().back();
  const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 1));
  const std::vector<float> gradient(layout.size(), 0.5F);
  Workspace scratch;
  for (const StepInfo& info : {StepInfo{}, StepInfo{.step = 5, .num_steps = 5}}) {
    Training training = StartTraining(*rule, 1);
    const Training before = training;
    const auto update = [&] {
      rule->Update(info, gradient, training.params, training.state, scratch);
    };
    if (optimizer.needs_num_steps().empty()) {
      update();
      CHECK(AllFinite(training.params));
      CHECK_FALSE(SameBits(training, before));
    } else {
      CheckThrows(optimizer.needs_num_steps() + " needs the length of the run", update);
      CHECK(SameBits(training, before));
    }
  }
}

}  // namespace lopt::contracts
