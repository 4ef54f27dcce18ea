#include "lopt/lopt/network/tile_layers.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "lopt/base/platform.h"
#include "lopt/lopt/network/precision.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace lopt {
namespace {

constexpr int64_t kRows = 16;     // of a tile: hidden units, or pairs of inputs
constexpr int64_t kPerTile = 32;  // inputs
constexpr int64_t kBlocks = 4;    // of parameters, whose sums are in tiles together
static_assert(kPerTile == kBfloat16Inputs);

std::atomic<bool> switched_off = false;

uint16_t Bfloat16Bits(float x) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(RoundToBfloat16(x)) >> 16);
}

int64_t TilesOf(int64_t n, int64_t size) { return (n + size - 1) / size; }

#if defined(__x86_64__)
// Leaf 7 of CPUID: AMX-BF16, AMX-TILE, and AVX512-BF16 in subleaf 1; AVX-512 F and BW.
bool ProcessorHasTiles() {
  unsigned int eax = 0;
  unsigned int ebx = 0;
  unsigned int ecx = 0;
  unsigned int edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned int kAmx = 1u << 22 | 1u << 24;
  constexpr unsigned int kAvx512 = 1u << 16 | 1u << 30;
  if ((edx & kAmx) != kAmx || (ebx & kAvx512) != kAvx512) return false;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 1u << 5) != 0;
}
#endif

}  // namespace

bool HaveTiles() {
#if defined(__x86_64__)
  static const bool have = ProcessorHasTiles() && AllowMatrixTiles();
  return have && !switched_off;
#else
  return false;
#endif
}

WithoutTiles::WithoutTiles() { switched_off = true; }
WithoutTiles::~WithoutTiles() { switched_off = false; }

TileWeights::TileWeights(const NetworkWeights& net)
    : inputs_(net.inputs),
      hidden_(net.hidden),
      unit_tiles_(TilesOf(net.hidden, kRows)),
      output_{net.output[0], net.output[1]},
      output_bias_{net.output_bias[0], net.output_bias[1]} {
  const auto tiles_of = [&](int64_t layer) {
    return TilesOf(layer == 0 ? net.inputs : net.hidden, kPerTile);
  };
  // A row of biases takes a line of 16 floats.
  const int64_t bias_lines = kRows * unit_tiles_;
  int64_t lines = 0;
  for (int64_t l = 0; l < net.layers; ++l) {
    lines += unit_tiles_ * tiles_of(l) * kRows + (l == 0 ? 0 : bias_lines);
  }
  lines_.resize(static_cast<size_t>(lines));
  Line* next = lines_.data();
  for (int64_t l = 0; l < net.layers; ++l) {
    const int64_t inputs = l == 0 ? net.inputs : net.hidden;
    const float* weights = l == 0 ? net.input : net.inner + (l - 1) * (net.hidden + 1) * net.stride;
    const int64_t tiles = tiles_of(l);
    for (int64_t j = 0; j < net.hidden; ++j) {
      for (int64_t k = 0; k < inputs; ++k) {
        Line& row = next[(j / kRows * tiles + k / kPerTile) * kRows + j % kRows];
        row.x[k % kPerTile] = Bfloat16Bits(weights[k * net.stride + j]);
      }
    }
    Layer layer = {.weights = next, .bias = nullptr, .input_tiles = tiles};
    next += unit_tiles_ * tiles * kRows;
    if (l > 0) {
      auto* bias = reinterpret_cast<float*>(next);
      for (int64_t j = 0; j < net.hidden; ++j) {
        std::fill_n(bias + j * kRows, kRows, weights[net.hidden * net.stride + j]);
      }
      layer.bias = bias;
      next += bias_lines;
    }
    layers_.push_back(layer);
  }
}

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target "amx-tile,amx-bf16,avx512f,avx512bw,avx512bf16"
// g++ 12 warns of its own header.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace {

// What LDTILECFG reads: every tile has 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);
constexpr TileShapes kShapes;

// max(x, 0) that passes NaN on.
inline __m512 Relu(__m512 x) { return _mm512_max_ps(_mm512_setzero_ps(), x); }

// Rounds two rows of 16 numbers and sets their places side by side.
inline void StorePair(__m512 even, __m512 odd, __m512i order, void* to) {
  const __m512bh both = _mm512_cvtne2ps_pbh(odd, even);
  _mm512_store_si512(to, _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(both)));
}

// 0, 16, 1, 17, ...
inline __m512i PairOrder() {
  alignas(64) uint16_t order[32];
  for (uint16_t i = 0; i < 32; ++i) order[i] = static_cast<uint16_t>(i % 2 * 16 + i / 2);
  return _mm512_load_si512(order);
}

// Where the sums of four blocks go, and what is added up.
struct Sums {
  const char* weights;  // [unit_tiles, input_tiles, 16, 32] bfloat16
  const float* bias;    // [unit_tiles, 16, 16]
  const char* inputs;   // [4, input_tiles, 16, 32] bfloat16
  float* sums;          // [4, unit_tiles, 16, 16]: bias + weights times inputs
};
constexpr int64_t kTileBytes = 1024;  // of numbers of either kind

// Has memory be what was written: not every compiler knows that tiles are loaded from it.
#define LOPT_TILES_IN_MEMORY asm volatile("" ::: "memory")

// The sums of one unit tile.
inline void AddUnitTile(const Sums& s, int64_t unit_tiles, int64_t input_tiles, int64_t unit_tile) {
  const int64_t in_bytes = input_tiles * kTileBytes;
  const int64_t block = unit_tiles * kRows * kRows;
  const float* bias = s.bias + unit_tile * kRows * kRows;
  const char* w = s.weights + unit_tile * in_bytes;
  const char* x = s.inputs;
  float* to = s.sums + unit_tile * kRows * kRows;
  _tile_loadd(0, bias, 64);
  _tile_loadd(1, bias, 64);
  _tile_loadd(2, bias, 64);
  _tile_loadd(3, bias, 64);
  for (int64_t k = 0; k < input_tiles; ++k, w += kTileBytes, x += kTileBytes) {
    _tile_loadd(4, w, 64);
    _tile_loadd(5, x, 64);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, x + in_bytes, 64);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, x + 2 * in_bytes, 64);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, x + 3 * in_bytes, 64);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_stored(0, to, 64);
  _tile_stored(1, to + block, 64);
  _tile_stored(2, to + 2 * block, 64);
  _tile_stored(3, to + 3 * block, 64);
}

// The sums of both of two unit tiles from one input tile, whose weights stay in registers.
inline void AddTwoUnitTiles(const Sums& s) {
  constexpr int64_t kTile = kRows * kRows;
  _tile_loadd(6, s.weights, 64);
  _tile_loadd(7, s.weights + kTileBytes, 64);
  for (int64_t b = 0; b < kBlocks; b += 2) {
    const char* x = s.inputs + b * kTileBytes;
    float* to = s.sums + 2 * b * kTile;
    _tile_loadd(0, s.bias, 64);
    _tile_loadd(1, s.bias + kTile, 64);
    _tile_loadd(4, x, 64);
    _tile_dpbf16ps(0, 6, 4);
    _tile_dpbf16ps(1, 7, 4);
    _tile_loadd(2, s.bias, 64);
    _tile_loadd(3, s.bias + kTile, 64);
    _tile_loadd(5, x + kTileBytes, 64);
    _tile_dpbf16ps(2, 6, 5);
    _tile_dpbf16ps(3, 7, 5);
    _tile_stored(0, to, 64);
    _tile_stored(1, to + kTile, 64);
    _tile_stored(2, to + 2 * kTile, 64);
    _tile_stored(3, to + 3 * kTile, 64);
  }
}

inline void AddUp(const Sums& s, int64_t unit_tiles, int64_t input_tiles) {
  LOPT_TILES_IN_MEMORY;
  if (unit_tiles == 2 && input_tiles == 1) {
    AddTwoUnitTiles(s);
  } else {
    for (int64_t u = 0; u < unit_tiles; ++u) AddUnitTile(s, unit_tiles, input_tiles, u);
  }
  LOPT_TILES_IN_MEMORY;
}

void LoadShapes() { _tile_loadconfig(&kShapes); }
void ReleaseTiles() { _tile_release(); }

}  // namespace

void TileLayers::OutputsOfFour(const float* features, float* outputs) const {
  const __m512i order = PairOrder();
  const int64_t inputs = weights_.inputs_;
  const int64_t hidden = weights_.hidden_;
  const int64_t rows = kRows * weights_.unit_tiles_;
  const TileWeights::Layer* layer = weights_.layers_.data();
  const TileWeights::Layer* const last = &weights_.layers_.back();
  int64_t lines = layer->input_tiles * kRows;  // of a block's inputs
  for (int64_t b = 0; b < kBlocks; ++b) {
    const float* x = features + b * inputs * kRows;
    Line* to = features_ + b * lines;
    int64_t k = 0;
    for (; k + 1 < inputs; k += 2, x += 2 * kRows) {
      StorePair(_mm512_load_ps(x), _mm512_load_ps(x + kRows), order, to++);
    }
    if (k < inputs) StorePair(_mm512_load_ps(x), _mm512_setzero_ps(), order, to);
  }
  const auto add_up = [&](const float* bias, const Line* in) {
    AddUp({reinterpret_cast<const char*>(layer->weights), bias, reinterpret_cast<const char*>(in),
           sums_},
          weights_.unit_tiles_, layer->input_tiles);
  };
  add_up(bias_, features_);
  while (layer++ != last) {
    lines = layer->input_tiles * kRows;
    for (int64_t b = 0; b < kBlocks; ++b) {
      const float* x = sums_ + b * rows * kRows;
      Line* to = hidden_ + b * lines;
      int64_t j = 0;
      for (; j + 1 < hidden; j += 2, x += 2 * kRows) {
        StorePair(Relu(_mm512_load_ps(x)), Relu(_mm512_load_ps(x + kRows)), order, to++);
      }
      if (j < hidden) StorePair(Relu(_mm512_load_ps(x)), _mm512_setzero_ps(), order, to);
    }
    add_up(layer->bias, hidden_);
  }
  const float* w0 = weights_.output_[0];
  const float* w1 = weights_.output_[1];
  __m512 out0[kBlocks];
  __m512 out1[kBlocks];
  for (int64_t b = 0; b < kBlocks; ++b) {
    out0[b] = _mm512_set1_ps(weights_.output_bias_[0]);
    out1[b] = _mm512_set1_ps(weights_.output_bias_[1]);
  }
  for (int64_t j = 0; j < hidden; ++j) {
    const __m512 weight0 = _mm512_set1_ps(w0[j]);
    const __m512 weight1 = _mm512_set1_ps(w1[j]);
    for (int64_t b = 0; b < kBlocks; ++b) {
      const __m512 x = Relu(_mm512_load_ps(sums_ + (b * rows + j) * kRows));
      out0[b] = _mm512_fmadd_ps(x, weight0, out0[b]);
      out1[b] = _mm512_fmadd_ps(x, weight1, out1[b]);
    }
  }
  for (int64_t b = 0; b < kBlocks; ++b) {
    _mm512_store_ps(outputs + b * kRows, out0[b]);
    _mm512_store_ps(outputs + kStretch + b * kRows, out1[b]);
  }
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC diagnostic pop
#pragma GCC pop_options
#endif

TileLayers::TileLayers(const TileWeights& weights, const float* bias, Workspace& workspace)
    : weights_(weights) {
  const int64_t rows = kRows * weights.unit_tiles_;
  bias_ = workspace.Take<float>(rows * kRows).data();
  for (int64_t j = 0; j < weights.hidden_; ++j) std::fill_n(bias_ + j * kRows, kRows, bias[j]);
  std::fill(bias_ + weights.hidden_ * kRows, bias_ + rows * kRows, 0.0f);
  // Places behind the last input are 0 and stay so.
  const auto take_inputs = [&](int64_t inputs, const TileWeights::Layer& layer) {
    const int64_t lines = layer.input_tiles * kRows;
    Line* taken = workspace.Take<Line>(kBlocks * lines).data();
    for (int64_t b = 0; b < kBlocks; ++b) {
      std::memset(taken + b * lines + inputs / 2, 0, (lines - inputs / 2) * sizeof(Line));
    }
    return taken;
  };
  features_ = take_inputs(weights.inputs_, weights.layers_.front());
  hidden_ = nullptr;
  if (weights.layers_.size() > 1) {
    hidden_ = take_inputs(weights.hidden_, weights.layers_.back());
  }
  sums_ = workspace.Take<float>(kBlocks * rows * kRows).data();
  LoadShapes();
}

TileLayers::~TileLayers() { ReleaseTiles(); }

void TileLayers::Outputs(const float* features, int64_t blocks, float* outputs) const {
  const int64_t size = weights_.inputs_ * kRows;
  for (int64_t b = 0; b < blocks; b += kBlocks) {
    OutputsOfFour(features + b * size, outputs + b * kRows);
  }
}

#else

// Nothing makes one where HaveTiles is false.
TileLayers::TileLayers(const TileWeights& weights, const float* /*bias*/, Workspace& /*workspace*/)
    : weights_(weights) {}
TileLayers::~TileLayers() = default;
void TileLayers::Outputs(const float* /*features*/, int64_t /*blocks*/, float* /*outputs*/) const {}

#endif

}  // namespace lopt
