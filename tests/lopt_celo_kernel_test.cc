#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/key.h"
#include "lopt/lopt/celo/celo.h"
#include "lopt/lopt/celo/celo_scheduler.h"
#include "tests/reference/celo_reference.h"
#include "tests/rule_pair.h"

namespace lopt {
namespace {

// A run under way, whose steps are a thousandth of the params. They are made large beside these, so
// that rounding shows little of them: a direction is compared times 1000.
struct CeloPair : RulePair {
  explicit CeloPair(const Layout& layout)
      : RulePair(Celo({.scheduled = false}), ReferenceCelo(CeloOptions{.scheduled = false}),
                 layout) {
    BeginUnderWay(3);
    for (float& x : start.params) x *= 1e3f;
  }
};

// The elements in which a run differs from the oracle's: a param by the rounding of its step, a
// state by 1e-6 of itself plus the rounding of its terms.
int64_t Differences(const CeloPair& pair, const RuleRun& run, const RuleRun& oracle) {
  int64_t wrong = 0;
  for (size_t i = 0; i < run.params.size(); ++i) {
    const double step = oracle.params[i] - pair.start.params[i];
    const double size = std::abs(double{pair.start.params[i]}) + std::abs(step);
    const double allowed = std::isfinite(step) ? 2e-7 * size + 5e-6 * std::abs(step) + 4e-9 : 0;
    if (!Agree(run.params[i], oracle.params[i], allowed)) ++wrong;
  }
  for (size_t i = 0; i < run.state.size(); ++i) {
    const double terms = std::abs(double{pair.start.state[i]}) + std::abs(double{oracle.state[i]});
    const double allowed = std::isfinite(terms) ? 1e-6 * terms + 2e-8 : 0;
    if (!Agree(run.state[i], oracle.state[i], allowed)) ++wrong;
  }
  return wrong;
}

TEST_CASE("Celo's kernel agrees with its reference for every shape") {
  const CeloPair pair(FactoredShapes());
  const RuleRun oracle = pair.After(*pair.reference, 37);
  OnEveryIsa([&] { CHECK(Differences(pair, pair.After(*pair.fast, 37), oracle) == 0); });
}

TEST_CASE("Celo's kernel agrees with its reference on zeros, infinity and NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CeloPair pair(FactoredShapes());
  const std::vector<float> gradient = pair.gradient;
  for (const float special : {0.0f, 1e-40f, 1e-20f, 1e8f, -1e30f, infinity, nan}) {
    for (const bool everywhere : {false, true}) {
      CAPTURE(special);
      CAPTURE(everywhere);
      pair.gradient = gradient;
      pair.Put(special, everywhere, &pair.gradient);
      const RuleRun oracle = pair.After(*pair.reference, 3);
      OnEveryIsa([&] { CHECK(Differences(pair, pair.After(*pair.fast, 3), oracle) == 0); });
    }
  }
}

TEST_CASE("an update by Celo does not allocate once its workspace has grown") {
  CheckAllocatesNothing(CeloPair(FactoredShapes()));
}

TEST_CASE("Celo updates large tensors in pieces, with the same bits on any threads") {
  const CeloPair pair(Layout({{"a", {5}}, {"w", {300, 700}}, {"t", {70000, 3}}, {"b", {65537}}}));
  const RuleRun wanted = pair.After(*pair.fast, 3);
  CHECK(Differences(pair, wanted, pair.After(*pair.reference, 3)) == 0);
  CheckSameBitsOnAnyThreads(pair, wanted, 3);
}

// Runs the scheduler and its reference side by side.
void CompareSchedulers(int64_t lstm_size) {
  CAPTURE(lstm_size);
  const CeloAdam optimizer({.lstm_size = lstm_size});
  const Layout& layout = optimizer.theta_layout();
  Eigen::VectorXf theta = optimizer.InitTheta(KeyFromSeed(21));
  std::vector<float> noise(static_cast<size_t>(theta.size()));
  Normal(KeyFromSeed(22), noise);
  // Large enough that the gates reach both ends of their range.
  for (int64_t i = 0; i < theta.size(); ++i) theta[i] += .3f * noise[static_cast<size_t>(i)];
  const CeloScheduler scheduler(lstm_size, layout, AsSpan(theta));
  std::vector<float> state(static_cast<size_t>(scheduler.state_size()));
  std::vector<float> wanted = state;
  std::vector<float> losses(30);
  Normal(KeyFromSeed(23), losses);
  Workspace scratch;
  for (int64_t step = 0; step < std::ssize(losses); ++step) {
    CAPTURE(step);
    const StepInfo info = {
        .step = step, .num_steps = 40, .loss = 2 + .3f * losses[static_cast<size_t>(step)]};
    const float output = PlainSchedulerStep(lstm_size, layout, AsSpan(theta), info, wanted);
    // The rounding of sums of some 100 terms, in gates whose slope is at most 1, and its growth
    // over the steps; and of the output, a sum of lstm_size terms below 1.
    CHECK(
        Agree(scheduler.Step(info, state, scratch), output, 1e-5 * static_cast<double>(lstm_size)));
    int64_t wrong = 0;
    for (size_t i = 0; i < state.size(); ++i) wrong += Agree(state[i], wanted[i], 2e-5) ? 0 : 1;
    CHECK(wrong == 0);
  }
}

TEST_CASE("the scheduler's kernel agrees with its reference for LSTMs of any size") {
  OnEveryIsa([] {
    for (const int64_t lstm_size : {1, 5, 16, 17, 64, 100}) CompareSchedulers(lstm_size);
  });
}

TEST_CASE("the scheduler's kernel passes NaN of a loss on") {
  const CeloAdam optimizer;
  const Eigen::VectorXf theta = optimizer.InitTheta(KeyFromSeed(21));
  const CeloScheduler scheduler(64, optimizer.theta_layout(), AsSpan(theta));
  OnEveryIsa([&] {
    std::vector<float> state(static_cast<size_t>(scheduler.state_size()));
    Workspace scratch;
    for (int64_t step = 0; step < 2; ++step) {
      scheduler.Step({.step = step, .num_steps = 40, .loss = 1}, state, scratch);
    }
    CHECK(std::isnan(scheduler.Step({.step = 2, .num_steps = 40, .loss = NAN}, state, scratch)));
    CHECK(std::ranges::all_of(std::span(state).first(128), [](float x) { return std::isnan(x); }));
  });
}

// CeloAdam's and Sinv6's kernel beside its reference, from a run under way.
template <class Optimizer, class Reference>
void CompareScheduledMoments(float special, bool everywhere) {
  CAPTURE(special);
  CAPTURE(everywhere);
  RulePair pair(Optimizer(), Reference(), FactoredShapes());
  pair.BeginUnderWay(3);
  if (special != 1) pair.Put(special, everywhere, &pair.gradient);
  const RuleRun oracle = pair.After(*pair.reference, 7);
  OnEveryIsa([&] {
    const RuleRun run = pair.After(*pair.fast, 7);
    int64_t wrong = 0;
    for (size_t i = 0; i < run.params.size(); ++i) {
      const double step = oracle.params[i] - pair.start.params[i];
      // The rate comes from the scheduler: 2e-5 of it is what CompareSchedulers allows.
      const double allowed = 2e-5 * std::abs(step) + 2e-7 * std::abs(pair.start.params[i]);
      if (!Agree(run.params[i], oracle.params[i], allowed)) ++wrong;
    }
    for (size_t i = 0; i < run.state.size(); ++i) {
      const double allowed = 2e-6 * std::abs(oracle.state[i]) + 2e-6;
      if (!Agree(run.state[i], oracle.state[i], allowed)) ++wrong;
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("CeloAdam's and Sinv6's kernel agrees with its reference for every shape and number") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float special : {1.0f, 0.0f, 1e-40f, 1e-20f, 1e8f, -1e30f, infinity, nan}) {
    for (const bool everywhere : {false, true}) {
      CompareScheduledMoments<CeloAdam, ReferenceCeloAdam>(special, everywhere);
      CompareScheduledMoments<Sinv6, ReferenceSinv6>(special, everywhere);
    }
  }
}

TEST_CASE("updates with the scheduler do not allocate once their workspace has grown") {
  CheckAllocatesNothing(RulePair(Celo(), ReferenceCelo(), FactoredShapes()));
  CheckAllocatesNothing(RulePair(CeloAdam(), ReferenceCeloAdam(), FactoredShapes()));
}

}  // namespace
}  // namespace lopt
