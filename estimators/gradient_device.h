#pragma once

#include <cstdint>

#include "lopt/base/key_device.h"

namespace lopt {

// The gradient of antithetic pairs as a device adds it up: it draws the pairs' perturbations once
// more from their keys, and keeps each pair's accumulator, the sum of those that its episode has
// run under. Pointers are to the device's memory.

// What becomes of the accumulator, the sum of the perturbations that an episode has run under.
enum class AccumulatorAfter : int32_t {
  kStays,
  kGrows,  // by the perturbation in force
  kEnds,   // with its episode: the next starts at 0
};

// Losses in a row of one pair that share one sum, which weighs them: the accumulator and the
// perturbation in force.
struct DeviceLosses {
  Key key;                      // of the perturbation
  double weight = 0;            // of that sum, in the gradient
  AccumulatorAfter after = {};  // what then becomes of the sum
};

struct DeviceGradient {
  int64_t pairs = 0;   // N
  int64_t size = 0;    // D
  float std = 0;       // of the perturbations
  double divisor = 0;  // of the sum over the pairs
  const DeviceLosses* losses = nullptr;
  const int64_t* first_losses = nullptr;  // [N + 1]: pair n's are [n], ..., [n + 1] - 1
  float* accumulator = nullptr;           // [N, D], brought up to date; null: all are 0
  float* gradient = nullptr;              // [D]
  double* squares = nullptr;              // [tiles]: of the pairs' own gradients, not divided
  double* accumulator_squares = nullptr;  // [N]: |accumulator|^2 as it was; null as that is
};

// A block adds up a tile of the gradient's numbers; eight threads share the pairs of each.
constexpr int kTileNumbers = 32;
constexpr int kTileShares = 8;
constexpr int kGradientThreads = kTileNumbers * kTileShares;
// Of a block's memory.
constexpr int kGradientFloats = 2 * kGradientThreads * 2;

LOPT_DEVICE inline int64_t TilesOf(int64_t size) {
  return (size + kTileNumbers - 1) / kTileNumbers;
}

// Number i of pair n's own gradient. Brings that of `accumulator` up to date.
LOPT_DEVICE inline double WalkLosses(const DeviceGradient& of, int64_t n, int64_t i) {
  float* stored = of.accumulator == nullptr ? nullptr : of.accumulator + n * of.size + i;
  float accumulator = stored == nullptr ? 0 : *stored;
  double sum = 0;
  for (int64_t s = of.first_losses[n]; s < of.first_losses[n + 1]; ++s) {
    const DeviceLosses& losses = of.losses[s];
    const float all = accumulator + of.std * NormalAt(losses.key, static_cast<uint64_t>(i));
    sum += losses.weight * static_cast<double>(all);
    if (losses.after == AccumulatorAfter::kGrows) accumulator = all;
    if (losses.after == AccumulatorAfter::kEnds) accumulator = 0;
  }
  if (stored != nullptr) *stored = accumulator;
  return sum;
}

// What each thread of a block has left in `partial`.
LOPT_DEVICE inline void SumInOrder(const Block& block, const double* partial, double* sum) {
  block.Once([&] {
    *sum = 0;
    for (int thread = 0; thread < block.threads(); ++thread) *sum += partial[thread];
  });
}

// The program of a block for one tile: the sums over the pairs, in an order that their number alone
// decides.
LOPT_DEVICE inline void SumTile(const Block& block, const DeviceGradient& of, int64_t tile) {
  auto* sums = reinterpret_cast<double*>(block.shared());
  double* squares = sums + kGradientThreads;
  const int64_t first = tile * kTileNumbers;
  block.ForEachThread([&](int thread) {
    const int64_t i = first + thread % kTileNumbers;
    const int64_t share = thread / kTileNumbers;
    double sum = 0;
    double square = 0;
    if (i < of.size) {
      for (int64_t n = of.pairs * share / kTileShares; n < of.pairs * (share + 1) / kTileShares;
           ++n) {
        const double own = WalkLosses(of, n, i);
        sum += own;
        square += own * own;
      }
    }
    sums[thread] = sum;
    squares[thread] = square;
  });
  block.ForEach(kTileNumbers, [&](int64_t i) {
    if (first + i >= of.size) return;
    double sum = 0;
    for (int share = 0; share < kTileShares; ++share) sum += sums[share * kTileNumbers + i];
    of.gradient[first + i] = static_cast<float>(sum / of.divisor);
  });
  SumInOrder(block, squares, of.squares + tile);
}

// The program of a block for one pair: |accumulator|^2, before a tile brings `accumulator` up to
// date.
LOPT_DEVICE inline void SquareAccumulator(const Block& block, const DeviceGradient& of,
                                          int64_t pair) {
  auto* partial = reinterpret_cast<double*>(block.shared());
  const float* accumulator = of.accumulator + pair * of.size;
  block.ForEachThread([&](int thread) {
    double sum = 0;
    for (int64_t i = thread; i < of.size; i += block.threads()) {
      sum += static_cast<double>(accumulator[i]) * static_cast<double>(accumulator[i]);
    }
    partial[thread] = sum;
  });
  SumInOrder(block, partial, of.accumulator_squares + pair);
}

}  // namespace lopt
