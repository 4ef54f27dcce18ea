#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "base/key.h"
#include "base/parallel.h"
#include "count_allocations.h"
#include "lopt/adafac_mlp_lopt.h"
#include "tests/on_every_isa.h"

namespace lopt {
namespace {

using Implementation = AdafacMLPLOpt::Implementation;

// Ranks from 0 to 5, ties, sizes around vectors and tiles, lines shorter and longer than a vector.
Layout AdafacShapes() {
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

struct AdafacRun {
  std::vector<float> params;
  std::vector<float> state;
};

// Both implementations of one network, and a run under way: params small beside the steps.
struct AdafacPair {
  AdafacPair(AdafacMLPLOptOptions options, const Layout& layout) : layout(layout) {
    options.step_mult = 1;
    const AdafacMLPLOpt fast_optimizer(options);
    const AdafacMLPLOpt reference_optimizer(options, Implementation::kReference);
    Eigen::VectorXf theta = fast_optimizer.InitTheta(KeyFromSeed(11));
    std::vector<float> noise(theta.size());
    Normal(KeyFromSeed(12), noise);
    for (int64_t i = 0; i < theta.size(); ++i) theta[i] += .05f * noise[i];
    const std::span<const float> weights(theta.data(), static_cast<size_t>(theta.size()));
    fast = fast_optimizer.Bind(layout, weights);
    reference = reference_optimizer.Bind(layout, weights);
    start.params.resize(layout.size());
    Normal(KeyFromSeed(13), start.params);
    for (float& x : start.params) x *= 1e-3f;
    gradient.resize(layout.size());
    Normal(KeyFromSeed(14), gradient);
    start.state.assign(fast->state_layout().size(), 0.0f);
    Workspace scratch;
    std::vector<float> forgotten = start.params;
    std::vector<float> other(layout.size());
    for (uint64_t step = 0; step < 3; ++step) {
      Normal(KeyFromSeed(15 + step), other);
      reference->Update({}, other, forgotten, start.state, scratch);
    }
  }

  AdafacRun After(const UpdateRule& rule, int64_t step) const {
    AdafacRun run = start;
    Workspace scratch;
    rule.Update({.step = step}, gradient, run.params, run.state, scratch);
    return run;
  }

  Layout layout;
  std::unique_ptr<UpdateRule> fast;
  std::unique_ptr<UpdateRule> reference;
  AdafacRun start;
  std::vector<float> gradient;
};

// Both NaN, equal (infinities), or within `allowed`.
bool Near(float a, float b, double allowed) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(double{a} - b) <= allowed;
}

// The elements in which a run differs from the oracle's. A step may differ by 2e-6 of itself plus
// 1e-6, the rounding of sums of terms that may cancel; a state by 1e-6 of itself plus the rounding
// of its terms.
int64_t Differences(const AdafacPair& pair, const AdafacRun& run, const AdafacRun& oracle) {
  int64_t wrong = 0;
  for (size_t i = 0; i < run.params.size(); ++i) {
    const double step = oracle.params[i] - pair.start.params[i];
    if (!Near(run.params[i], oracle.params[i],
              1e-6 + (std::isfinite(step) ? 2e-6 * std::abs(step) : 0))) {
      ++wrong;
    }
  }
  for (size_t i = 0; i < run.state.size(); ++i) {
    const double terms = std::abs(double{pair.start.state[i]}) + std::abs(double{oracle.state[i]});
    const double allowed = std::isfinite(terms) ? 1e-6 * terms + 2e-8 : 0;
    if (!Near(run.state[i], oracle.state[i], allowed)) ++wrong;
  }
  return wrong;
}

TEST_CASE("AdafacMLPLOpt's kernel agrees with its reference for every width, depth and shape") {
  for (const int64_t hidden_size : {1, 2, 3, 4, 5, 8, 9, 13, 16, 32, 33}) {
    for (const int64_t hidden_layers : {1, 2, 3}) {
      CAPTURE(hidden_size);
      CAPTURE(hidden_layers);
      const AdafacPair pair({.hidden_size = hidden_size, .hidden_layers = hidden_layers},
                            AdafacShapes());
      const AdafacRun oracle = pair.After(*pair.reference, 37);
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
                            AdafacShapes());
      const AdafacRun oracle = pair.After(*pair.reference, 5);
      OnEveryIsa([&] { CHECK(Differences(pair, pair.After(*pair.fast, 5), oracle) == 0); });
    }
  }
}

TEST_CASE("AdafacMLPLOpt's kernel agrees with its reference on zeros, infinity and NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t hidden_size : {4, 32}) {
    AdafacPair pair({.hidden_size = hidden_size}, AdafacShapes());
    const std::vector<float> gradient = pair.gradient;
    for (const float special : {0.0f, 1e-40f, 1e-20f, 1e8f, -1e30f, infinity, nan}) {
      for (const bool everywhere : {false, true}) {
        CAPTURE(special);
        CAPTURE(everywhere);
        pair.gradient = gradient;
        for (const LayoutEntry& entry : pair.layout.entries()) {
          for (int64_t i = 0; i < entry.size; ++i) {
            if (everywhere || i == entry.size / 2) pair.gradient[entry.offset + i] = special;
          }
        }
        const AdafacRun oracle = pair.After(*pair.reference, 3);
        OnEveryIsa([&] { CHECK(Differences(pair, pair.After(*pair.fast, 3), oracle) == 0); });
      }
    }
  }
}

TEST_CASE("an update by AdafacMLPLOpt does not allocate once its workspace has grown") {
  const AdafacPair pair({.hidden_size = 9}, AdafacShapes());
  AdafacRun run = pair.start;
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

TEST_CASE("AdafacMLPLOpt updates large tensors in pieces, with the same bits on any threads") {
  const Layout layout(
      {{"a", {5}}, {"w", {300, 700}}, {"t", {70000, 3}}, {"b", {65537}}, {"c", {3, 3, 90, 91}}});
  const AdafacPair pair({.hidden_size = 3}, layout);
  const AdafacRun wanted = pair.After(*pair.fast, 3);
  CHECK(Differences(pair, wanted, pair.After(*pair.reference, 3)) == 0);
  for (const int threads : {1, 2, 3}) {
    ThreadPool(threads).Run([&] {
      const AdafacRun run = pair.After(*pair.fast, 3);
      CHECK(run.params == wanted.params);
      CHECK(run.state == wanted.state);
    });
  }
}

}  // namespace
}  // namespace lopt
