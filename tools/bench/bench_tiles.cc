#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/tools/bench/bench_tiles.cc"
#include "lopt/tools/bench/bench_tiles.h"

#include <fmt/core.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/dispatch.h"
#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/network/network_columns-inl.h"

#ifndef LOPT_BENCH_TILES_ONCE
#define LOPT_BENCH_TILES_ONCE
namespace lopt {

struct TileShape {
  int vectors;
  int units;
};
constexpr TileShape kTileShapes[] = {{1, 8}, {2, 4}, {1, 16}, {2, 8}, {2, 12},
                                     {3, 4}, {3, 8}, {4, 6},  {6, 4}};
constexpr int64_t kTileUnits = 48;  // of the layer: a multiple of every shape's

// A layer's ReLU of bias + weights inputs for one tile's parameters.
struct TileLayer {
  TileShape shape;
  bool paced;
  int64_t inputs;
  const float* x;        // [inputs, parameters]
  const float* weights;  // [inputs, kTileUnits]
  const float* bias;     // [kTileUnits]
  float* out;            // [kTileUnits, parameters]
};

}  // namespace lopt
#endif  // LOPT_BENCH_TILES_ONCE

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

template <int kV, int kJ>
HWY_NOINLINE void RunTiles(const TileLayer& layer) {
  const int64_t first = layer.inputs - (layer.paced ? kPaced : 0);
  for (int64_t j = 0; j < kTileUnits; j += kJ) {
    V tile[kJ][kV];
    InnerTile(layer.x, first, layer.weights + j, kTileUnits, layer.bias + j, tile);
    float* out = layer.out + j * kV * kLanes;
    if (layer.paced) {
      FinishTile(InputsAt<kV>{layer.x + first * kV * kLanes},
                 layer.weights + first * kTileUnits + j, kTileUnits, tile, out);
    } else {
      StoreTile(tile, out);
    }
  }
}

template <size_t i = 0>
void RunTileLayer(const TileLayer& layer) {
  constexpr TileShape kShape = kTileShapes[i];
  if (layer.shape.vectors == kShape.vectors && layer.shape.units == kShape.units) {
    return RunTiles<kShape.vectors, kShape.units>(layer);
  }
  if constexpr (i + 1 < std::size(kTileShapes)) RunTileLayer<i + 1>(layer);
}

void RunLayer(const TileLayer& layer) { RunTileLayer(layer); }

int64_t LanesOfTarget() { return kLanes; }

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(RunLayer);
HWY_EXPORT(LanesOfTarget);

// Throws Error if what a layer has computed is not that of a plain loop, to rounding.
void CheckTiles(const std::string& name, const TileLayer& layer, int64_t parameters) {
  for (int64_t j = 0; j < kTileUnits; ++j) {
    for (int64_t i = 0; i < parameters; ++i) {
      double sum = layer.bias[j];
      for (int64_t k = 0; k < layer.inputs; ++k) {
        sum += static_cast<double>(layer.x[k * parameters + i]) * layer.weights[k * kTileUnits + j];
      }
      const double wanted = std::max(0.0, sum);
      const float got = layer.out[j * parameters + i];
      Require(std::abs(got - wanted) <= 1e-4,
              "bench: {} on {} gives {} for unit {} of parameter {}, a plain loop {}", name,
              CurrentIsa(), got, j, i, wanted);
    }
  }
}

// Throws Error if the layer has other bits with the stores of the other pace, which it is run with.
void CheckPace(const std::string& name, TileLayer layer, int64_t parameters) {
  const std::span<const float> out(layer.out, static_cast<size_t>(kTileUnits * parameters));
  const std::vector<float> wanted(out.begin(), out.end());
  layer.paced = !layer.paced;
  LOPT_DISPATCH(RunLayer)(layer);
  Require(std::ranges::equal(out, wanted),
          "bench: {} on {} depends on when a tile is stored, which must change no bit", name,
          CurrentIsa());
}

Workload TileWorkload(const std::string& name, TileShape shape, int64_t inputs, bool paced) {
  struct Data {
    Workspace memory;
    TileLayer layer;
  };
  auto data = std::make_shared<Data>();
  const int64_t parameters = shape.vectors * LOPT_DISPATCH(LanesOfTarget)();
  const auto normals = [&](uint64_t seed, int64_t size) {
    const std::span<float> numbers = data->memory.Take<float>(size);
    Normal(KeyFromSeed(seed), numbers);
    return numbers.data();
  };
  data->layer = {.shape = shape,
                 .paced = paced,
                 .inputs = inputs,
                 .x = normals(1, inputs * parameters),
                 .weights = normals(2, inputs * kTileUnits),
                 .bias = normals(3, kTileUnits),
                 .out = data->memory.Take<float>(kTileUnits * parameters).data()};
  const auto run = [data] { LOPT_DISPATCH(RunLayer)(data->layer); };
  return {.name = name,
          .unit = "layers",
          .flop = 2.0 * static_cast<double>(inputs * kTileUnits * parameters),
          .check =
              [=] {
                run();
                CheckTiles(name, data->layer, parameters);
                CheckPace(name, data->layer, parameters);
              },
          .call = run};
}

}  // namespace

std::vector<WorkloadMaker> TileWorkloads() {
  std::vector<WorkloadMaker> makers;
  for (const int64_t inputs : {8, 32}) {
    for (const TileShape shape : kTileShapes) {
      for (const bool paced : {false, true}) {
        const std::string name = fmt::format("tile/{}x{}/{}{}", shape.vectors, shape.units, inputs,
                                             paced ? "/paced" : "");
        makers.push_back({name, [=] { return TileWorkload(name, shape, inputs, paced); }});
      }
    }
  }
  return makers;
}

}  // namespace lopt
#endif  // HWY_ONCE
