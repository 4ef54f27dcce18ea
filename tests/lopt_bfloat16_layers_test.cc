#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/denormals.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/network/bfloat16_layers_kernel.h"
#include "lopt/lopt/network/packed_network.h"
#include "lopt/lopt/network/precision.h"
#include "lopt/lopt/network/tile_layers.h"
#include "tests/on_every_isa.h"
#include "tests/reference/bfloat16_network.h"
#include "tests/rule_pair.h"

namespace lopt {
namespace {

constexpr int64_t kBlock = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// Whether the instruction set adds products without rounding them.
bool IsFused() { return CurrentIsa() != "sse4" && CurrentIsa() != "scalar"; }

// Drawn weights and features of a network.
struct DrawnNetwork {
  DrawnNetwork(int64_t inputs, int64_t hidden, int64_t layers, int64_t blocks)
      : inputs(inputs),
        hidden(hidden),
        layers(layers),
        blocks(blocks),
        theta(static_cast<size_t>((inputs + 1) * hidden + (layers - 1) * (hidden + 1) * hidden +
                                  2 * (hidden + 1))),
        features(static_cast<size_t>(blocks * inputs * kBlock)) {
    const Key key = KeyFromSeed(static_cast<uint64_t>(inputs * 1000 + hidden * 10 + layers));
    Normal(FoldIn(key, 1), theta);
    for (float& weight : theta) weight /= std::sqrt(static_cast<float>(hidden));
    Normal(FoldIn(key, 2), features);
  }

  // [blocks, 2, 16]
  std::vector<float> Outputs() const {
    const FlushDenormals flush;
    const PackedNetwork packed(inputs, 0, hidden, layers, theta, Precision::kBfloat16);
    const NetworkWeights& net = packed.weights();
    Workspace workspace;
    const NetworkScratch scratch(net, workspace);
    std::copy_n(net.input_bias, net.stride, scratch.bias);
    const int64_t room = (blocks + 3) / 4 * 4;
    const std::span<float> aligned = workspace.Take<float>(room * inputs * kBlock);
    std::fill(std::copy(features.begin(), features.end(), aligned.begin()), aligned.end(), 0.0f);
    const std::span<float> outputs = workspace.Take<float>(2 * kStretch);
    Bfloat16Layers(net, scratch, workspace).Outputs(aligned.data(), blocks, outputs.data());
    std::vector<float> result;
    for (int64_t b = 0; b < blocks; ++b) {
      for (const int64_t row : {int64_t{0}, kStretch}) {
        const auto first = outputs.begin() + row + b * kBlock;
        result.insert(result.end(), first, first + kBlock);
      }
    }
    return result;
  }

  std::vector<float> Wanted(bool fused) const {
    const PlainBfloat16Network plain(inputs, 0, hidden, layers, theta, fused);
    std::vector<float> result(static_cast<size_t>(2 * blocks * kBlock));
    for (int64_t i = 0; i < blocks * kBlock; ++i) {
      std::vector<float> x;
      for (int64_t k = 0; k < inputs; ++k) {
        x.push_back(features[(i / kBlock * inputs + k) * kBlock + i % kBlock]);
      }
      const std::vector<float> outputs = plain.Run(x);
      result[i / kBlock * 2 * kBlock + i % kBlock] = outputs[0];
      result[(i / kBlock * 2 + 1) * kBlock + i % kBlock] = outputs[1];
    }
    return result;
  }

  int64_t inputs, hidden, layers, blocks;
  std::vector<float> theta;
  std::vector<float> features;
};

int64_t Different(const std::vector<float>& a, const std::vector<float>& b) {
  int64_t different = std::abs(std::ssize(a) - std::ssize(b));
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    different += SameBits(a[i], b[i]) ? 0 : 1;
  return different;
}

// On every instruction set, on AMX too where there is one.
void CheckBits(const DrawnNetwork& network, bool fused_only = false) {
  CAPTURE(network.inputs);
  CAPTURE(network.hidden);
  CAPTURE(network.layers);
  const std::array wanted = {network.Wanted(false), network.Wanted(true)};
  OnEveryIsa([&] {
    if (fused_only && !IsFused()) return;
    CHECK(Different(network.Outputs(), wanted[IsFused() ? 1 : 0]) == 0);
    const WithoutTiles without;
    CHECK(Different(network.Outputs(), wanted[IsFused() ? 1 : 0]) == 0);
  });
}

TEST_CASE("Rounding to bfloat16 is to the nearest, of two to the even one") {
  CHECK(RoundToBfloat16(1.0f) == 1.0f);
  CHECK(RoundToBfloat16(1.00390625f) == 1.0f);       // 1 + 2^-8, half way
  CHECK(RoundToBfloat16(1.01171875f) == 1.015625f);  // 1 + 3 2^-8, half way
  CHECK(RoundToBfloat16(1.003907f) == 1.0078125f);
  CHECK(RoundToBfloat16(3.4e38f) == kInfinity);
  CHECK(SameBits(RoundToBfloat16(-1e-40f), -0.0f));
  CHECK(std::isnan(RoundToBfloat16(kNan)));
  CHECK(std::isnan(RoundToBfloat16(std::bit_cast<float>(0x7f800001u))));
  for (const float x : {0.0f, -0.0f, kInfinity, -kInfinity}) CHECK(SameBits(RoundToBfloat16(x), x));
  int64_t wrong = 0;
  // Every exponent and sign; a prime step goes through all low bits.
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    wrong += SameBits(RoundToBfloat16(x), PlainBfloat16(x)) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("The layers have the oracle's bits for every width, depth and instruction set") {
  MESSAGE("AMX: ", HaveTiles());
  for (const int64_t hidden : {1, 2, 4, 8, 15, 16, 17, 31, 32, 33, 64, 65}) {
    for (const int64_t layers : {1, 2, 3}) CheckBits(DrawnNetwork(8, hidden, layers, 5));
  }
  for (const int64_t inputs : {1, 2, 7, 31, 32, 33, 47}) {
    CheckBits(DrawnNetwork(inputs, 32, 2, 1));
  }
}

TEST_CASE("The layers have the oracle's bits for numbers of every size") {
  for (const float special : {0.0f, -0.0f, 1e-45f, 1e-40f, 1.2e-38f, 1e-30f, 1e18f, 3e38f, -3e38f,
                              kInfinity, -kInfinity, kNan}) {
    CAPTURE(special);
    DrawnNetwork network(8, 33, 2, 4);
    for (size_t i = 0; i < network.features.size(); i += 5) network.features[i] = special;
    CheckBits(network, true);
  }
  for (const float scale : {1e-36f, 1e-19f, 1e19f, 1e36f}) {
    CAPTURE(scale);
    DrawnNetwork network(8, 32, 3, 4);
    for (float& x : network.features) x *= scale;
    CheckBits(network, true);
  }
}

MLPLOptOptions Bfloat16Options(int64_t hidden_size, int64_t hidden_layers) {
  return {.hidden_size = hidden_size,
          .hidden_layers = hidden_layers,
          .step_mult = 1,
          .precision = Precision::kBfloat16};
}

// The optimizer with and without AMX, under way.
struct TilePair : RulePair {
  TilePair(int64_t hidden_size, int64_t hidden_layers, const Layout& layout)
      : RulePair(MLPLOpt(Bfloat16Options(hidden_size, hidden_layers)),
                 MLPLOpt(Bfloat16Options(hidden_size, hidden_layers)), layout) {
    const WithoutTiles without;
    reference = MLPLOpt(Bfloat16Options(hidden_size, hidden_layers)).Bind(layout, AsSpan(theta));
    BeginUnderWay(1);
  }
};

TEST_CASE("An update has the same bits with AMX and without") {
  for (const int64_t hidden : {4, 16, 32, 48}) {
    CAPTURE(hidden);
    const TilePair pair(hidden, 2, FactoredShapes());
    OnEveryIsa([&] {
      const RuleRun with = pair.After(*pair.fast, 37);
      const RuleRun without = pair.After(*pair.reference, 37);
      CHECK(with.params == without.params);
      CHECK(with.state == without.state);
    });
  }
}

TEST_CASE("An update in bfloat16 is that of float32 to bfloat16's digits") {
  const Layout layout({{"w", {64, 32}}, {"b", {32}}, {"one", {}}});
  MLPLOptOptions options = Bfloat16Options(32, 2);
  const MLPLOpt bfloat16(options);
  options.precision = Precision::kFloat32;
  RulePair pair(bfloat16, MLPLOpt(options), layout);
  pair.BeginUnderWay(1);
  OnEveryIsa([&] {
    const RuleRun run = pair.After(*pair.fast, 37);
    const RuleRun exact = pair.After(*pair.reference, 37);
    CHECK(run.state == exact.state);
    double error = 0;
    double steps = 0;
    for (size_t i = 0; i < run.params.size(); ++i) {
      error += std::pow(double{run.params[i]} - exact.params[i], 2);
      steps += std::pow(double{exact.params[i]} - pair.start.params[i], 2);
    }
    // Each layer rounds inputs and weights by at most 2^-9 of themselves, 2^-9 / sqrt(3) in the
    // mean; four such errors a layer, two layers.
    const double relative = std::sqrt(error / steps);
    CHECK(relative < std::sqrt(8.0) / 512);
    CHECK(relative > 1e-4);
  });
}

TEST_CASE(
    "An update in bfloat16 has the same bits on every call, alignment and number of threads") {
  CheckSameBitsForEveryAlignment(TilePair(32, 2, FactoredShapes()));
  const TilePair pair(32, 2, Layout({{"a", {5}}, {"w", {3, 7000}}, {"b", {9217}}}));
  CheckSameBitsOnAnyThreads(pair, pair.After(*pair.fast, 3), 3);
  CheckAllocatesNothing(TilePair(33, 3, FactoredShapes()));
}

}  // namespace
}  // namespace lopt
