#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lopt/lopt/adafac/adafac_mlp_lopt.h"
#include "tests/reference/adafac_mlp_lopt_reference.h"
#include "tests/rule_pair.h"

namespace lopt {
namespace {

// A run under way, with steps of step_mult 1.
struct AdafacPair : RulePair {
  AdafacPair(const AdafacMLPLOptOptions& options, const Layout& layout)
      : RulePair(AdafacMLPLOpt(WithWholeSteps(options)),
                 ReferenceAdafacMLPLOpt(WithWholeSteps(options)), layout) {
    BeginUnderWay(3);
  }

 private:
  static AdafacMLPLOptOptions WithWholeSteps(AdafacMLPLOptOptions options) {
    options.step_mult = 1;
    return options;
  }
};

// The elements in which a run differs from the oracle's. A step may differ by 2e-6 of itself plus
// 1e-6, the rounding of sums of terms that may cancel; a state by 1e-6 of itself plus the rounding
// of its terms.
int64_t Differences(const AdafacPair& pair, const RuleRun& run, const RuleRun& oracle) {
  int64_t wrong = 0;
  for (size_t i = 0; i < run.params.size(); ++i) {
    const double step = oracle.params[i] - pair.start.params[i];
    if (!Agree(run.params[i], oracle.params[i],
               1e-6 + (std::isfinite(step) ? 2e-6 * std::abs(step) : 0))) {
      ++wrong;
    }
  }
  for (size_t i = 0; i < run.state.size(); ++i) {
    const double terms = std::abs(double{pair.start.state[i]}) + std::abs(double{oracle.state[i]});
    const double allowed = std::isfinite(terms) ? 1e-6 * terms + 2e-8 : 0;
    if (!Agree(run.state[i], oracle.state[i], allowed)) ++wrong;
  }
  return wrong;
}

TEST_CASE("AdafacMLPLOpt's kernel agrees with its reference for every width, depth and shape") {
  for (const int64_t hidden_size : {1, 2, 3, 4, 5, 8, 9, 13, 16, 32, 33}) {
    for (const int64_t hidden_layers : {1, 2, 3}) {
      CAPTURE(hidden_size);
      CAPTURE(hidden_layers);
      const AdafacPair pair({.hidden_size = hidden_size, .hidden_layers = hidden_layers},
                            FactoredShapes());
      const RuleRun oracle = pair.After(*pair.reference, 37);
      OnEveryIsa([&] { CHECK(Differences(pair, pair.After(*pair.fast, 37), oracle) == 0); });
    }
  }
}

TEST_CASE("AdafacMLPLOpt's kernel agrees with its reference for other lists of decays") {
  for (const size_t momenta : {1, 2, 5}) {
    for (const size_t squares : {size_t{1}, momenta}) {
      const AdafacPair pair({.initial_momentum_decays = std::vector<double>(momenta, .9),
                             .initial_rms_decays = std::vector<double>(squares, .7),
                             .initial_adafactor_decays = std::vector<double>(momenta, .8)},
                            FactoredShapes());
      const RuleRun oracle = pair.After(*pair.reference, 5);
      OnEveryIsa([&] { CHECK(Differences(pair, pair.After(*pair.fast, 5), oracle) == 0); });
    }
  }
}

TEST_CASE("AdafacMLPLOpt's kernel agrees with its reference on zeros, infinity and NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t hidden_size : {4, 32}) {
    AdafacPair pair({.hidden_size = hidden_size}, FactoredShapes());
    const std::vector<float> gradient = pair.gradient;
    for (const float special : {0.0f, 1e-40f, 1e-20f, 1e8f, 1e14f, -1e25f, -1e30f, infinity, nan}) {
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
}

TEST_CASE("an update by AdafacMLPLOpt does not allocate once its workspace has grown") {
  CheckAllocatesNothing(AdafacPair({.hidden_size = 9}, FactoredShapes()));
  CheckAllocatesNothing(AdafacPair({.hidden_size = 3}, Layout({{"w", {100, 700}}})));
}

TEST_CASE("AdafacMLPLOpt updates large tensors in pieces, with the same bits on any threads") {
  const Layout layout(
      {{"a", {5}}, {"w", {300, 700}}, {"t", {70000, 3}}, {"b", {65537}}, {"c", {3, 3, 90, 91}}});
  const AdafacPair pair({.hidden_size = 3}, layout);
  const RuleRun wanted = pair.After(*pair.fast, 3);
  CHECK(Differences(pair, wanted, pair.After(*pair.reference, 3)) == 0);
  CheckSameBitsOnAnyThreads(pair, wanted, 3);
}

}  // namespace
}  // namespace lopt
