#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lopt/lopt/celo/celo.h"
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

}  // namespace
}  // namespace lopt
