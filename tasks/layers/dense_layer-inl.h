// Per-target header of Highway kernels, as base/vector_math-inl.h: a dense layer,
// forward and backward.
#if defined(LOPT_DENSE_LAYER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_DENSE_LAYER_INL_H_
#undef LOPT_DENSE_LAYER_INL_H_
#else
#define LOPT_DENSE_LAYER_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lopt/base/vector_math-inl.h"
#include "lopt/tasks/layers/activation-inl.h"
#include "lopt/tasks/layers/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// As Forward below, with paced stores if so.
template <bool kPaced, class Left>
HWY_NOINLINE void ForwardTiles(const Left& a, int64_t rows, int64_t in, int64_t columns,
                               const float* w, const float* b, bool relu, PanelMatrix out,
                               float* buffer) {
  const float least = relu ? 0.0f : -std::numeric_limits<float>::infinity();
  ForPanels(columns, [&](int64_t p, auto kV) HWY_ATTR {
    const float* panel = Panel(w, in, columns, p, buffer);
    HWY_ALIGN float bias[kWidth] = {};
    std::copy_n(b + p * kWidth, std::min(kWidth, columns - p * kWidth), bias);
    float* to = out.Panel(p);
    ForRowTiles(0, rows, [&](int64_t row, auto kR) HWY_ATTR {
      Tile<kR, kV> tile;
      Unrolled<tile.kVectors>([&](auto i)
                                  HWY_ATTR { tile.sums[i] = hn::Load(d, bias + i % kV * kLanes); });
      if (p == 0) {
        const int64_t ahead = row + kRowsAhead;
        a.Prefetch(row == 0 ? kR : ahead, std::min(ahead + kR, rows), in);
      }
      if constexpr (kPaced) {
        return PacedProduct(a, row, in, panel, &tile, [=](int r, int v, V sums) HWY_ATTR {
          hn::Store(AtLeast(hn::Set(d, least), sums), d, to + (row + r) * kWidth + v * kLanes);
        });
      }
      AddProduct(a, row, in, panel, &tile);
      if (relu) {
        Unrolled<tile.kVectors>(
            [&](auto i) HWY_ATTR { tile.sums[i] = AtLeast(hn::Zero(d), tile.sums[i]); });
      }
      Unrolled<tile.kVectors>([&](auto i) HWY_ATTR {
        hn::Store(tile.sums[i], d, to + (row + i / kV) * kWidth + i % kV * kLanes);
      });
    });
  });
}

// out = a w + b for rows [0, rows), through a ReLU if so.
template <class Left>
HWY_INLINE void Forward(const Left& a, int64_t rows, int64_t in, int64_t columns, const float* w,
                        const float* b, bool relu, PanelMatrix out, float* buffer) {
  WithPace<Left>(in, a.Segment(), [&](auto kPaced) HWY_ATTR {
    ForwardTiles<kPaced>(a, rows, in, columns, w, b, relu, out, buffer);
  });
}

// Weights [units, columns] that give the panels of their transpose.
struct TransposedWeights {
  const float* w;
  int64_t units;
  int64_t columns;
  float* buffer;  // [columns, kWidth]
  const float* Panel(int64_t p) const {
    TransposedPanel(w, units, columns, p, buffer);
    return buffer;
  }
};

// As Backward below, with paced stores if so.
template <bool kPaced, bool kTransposed, class Left, class Weights>
HWY_NOINLINE void BackwardTiles(const Left& a, int64_t rows, int64_t units, int64_t columns,
                                const Weights& weights, Derivative derivative,
                                PanelMatrix gradient) {
  ForPanels(units, [&](int64_t p, auto kV) HWY_ATTR {
    const float* panel = weights.Panel(p);
    float* to = gradient.Panel(p);
    ForRowTiles(0, rows, [&](int64_t row, auto kR) HWY_ATTR {
      Tile<kR, kV> tile;
      Unrolled<tile.kVectors>([&](auto i) HWY_ATTR { tile.sums[i] = hn::Zero(d); });
      const auto store = [=](int r, int v, V sums) HWY_ATTR {
        float* at = to + (row + r) * kWidth + v * kLanes;
        hn::Store(ActivationGradient(derivative, hn::Load(d, at), sums), d, at);
      };
      if constexpr (kPaced && kTransposed) {
        return PacedTransposedProduct(a, row, columns, panel, &tile, store);
      } else if constexpr (kPaced) {
        return PacedProduct(a, row, columns, panel, &tile, store);
      } else if constexpr (kTransposed) {
        AddTransposedProduct(a, row, columns, panel, &tile);
      } else {
        AddProduct(a, row, columns, panel, &tile);
      }
      Unrolled<tile.kVectors>([&](auto i) HWY_ATTR { store(i / kV, i % kV, tile.sums[i]); });
    });
  });
}

// The gradient before a layer's activation, for rows [0, rows) of its units, from the gradient
// a [rows, columns] of what comes next and the weights in between, whose panels are [columns,
// kWidth]. It replaces in `gradient` what the derivative is taken from. kTransposed: a is [columns,
// rows].
template <bool kTransposed, class Left, class Weights>
HWY_INLINE void Backward(const Left& a, int64_t rows, int64_t units, int64_t columns,
                         const Weights& weights, Derivative derivative, PanelMatrix gradient) {
  WithPace<Left>(columns, a.Segment(), [&](auto kPaced) HWY_ATTR {
    BackwardTiles<kPaced, kTransposed>(a, rows, units, columns, weights, derivative, gradient);
  });
}

// The sums of `valid` columns of a panel over its first `count` rows.
template <int kV>
HWY_INLINE void ColumnSums(const float* panel, int64_t count, int64_t valid, bool add, float* out) {
  constexpr int kParts = 4;  // sums at a time, to hide the latency of additions
  V sums[kParts * kV];
  Unrolled<kParts * kV>([&](auto i) HWY_ATTR { sums[i] = hn::Zero(d); });
  int64_t k = 0;
  for (; k + kParts <= count; k += kParts) {
    Unrolled<kParts * kV>([&](auto i) HWY_ATTR {
      sums[i] = hn::Add(sums[i], hn::Load(d, panel + (k + i / kV) * kWidth + i % kV * kLanes));
    });
  }
  for (; k < count; ++k) {
    Unrolled<kV>([&](auto v) HWY_ATTR {
      sums[v] = hn::Add(sums[v], hn::Load(d, panel + k * kWidth + v * kLanes));
    });
  }
  HWY_ALIGN float whole[kWidth] = {};
  Unrolled<kV>([&](auto v) HWY_ATTR {
    const V low = hn::Add(sums[v], sums[kV + v]);
    const V high = hn::Add(sums[2 * kV + v], sums[3 * kV + v]);
    hn::Store(hn::Add(low, high), d, whole + v * kLanes);
  });
  for (int64_t j = 0; j < valid; ++j) out[j] = (add ? out[j] : 0.0f) + whole[j];
}

// The gradient of a layer's bias, b [columns], from that of its `count` outputs.
HWY_MAYBE_UNUSED static HWY_NOINLINE void BiasGradient(int64_t columns, int64_t count,
                                                       PanelMatrix outputs, bool add, float* b) {
  ForPanels(columns, [&](int64_t p, auto kV) HWY_ATTR {
    ColumnSums<kV>(outputs.Panel(p), count, std::min(kWidth, columns - p * kWidth), add,
                   b + p * kWidth);
  });
}

// The gradient of a layer's weights, w [in, columns], from its `count` inputs a and the gradient of
// its outputs.
template <class Left>
HWY_NOINLINE void WeightGradient(const Left& a, int64_t in, int64_t columns, int64_t count,
                                 PanelMatrix outputs, bool add, float* w) {
  ForPanels(columns, [&](int64_t p, auto kV) HWY_ATTR {
    const float* panel = outputs.Panel(p);
    const int64_t valid = std::min(kWidth, columns - p * kWidth);
    const auto tile_at = [&](int64_t row, auto kR) HWY_ATTR {
      const int rows = static_cast<int>(std::min<int64_t>(kR, in - row));
      float* to = w + row * columns + p * kWidth;
      Tile<kR, kV> tile;
      if (rows == kR && valid == kV * kLanes) {
        Unrolled<tile.kVectors>([&](auto i) HWY_ATTR {
          const float* at = to + i / kV * columns + i % kV * kLanes;
          tile.sums[i] = add ? hn::LoadU(d, at) : hn::Zero(d);
        });
        AddTransposedProduct(a, row, count, panel, &tile);
        Unrolled<tile.kVectors>([&](auto i) HWY_ATTR {
          hn::StoreU(tile.sums[i], d, to + i / kV * columns + i % kV * kLanes);
        });
      } else {
        Unrolled<tile.kVectors>([&](auto i) HWY_ATTR { tile.sums[i] = hn::Zero(d); });
        AddTransposedProduct(a, row, count, panel, &tile);
        HWY_ALIGN float whole[tile.kVectors * kLanes];
        Unrolled<tile.kVectors>([&](auto i)
                                    HWY_ATTR { hn::Store(tile.sums[i], d, whole + i * kLanes); });
        for (int r = 0; r < rows; ++r) {
          for (int64_t j = 0; j < valid; ++j) {
            float& at = to[r * columns + j];
            at = (add ? at : 0.0f) + whole[r * kV * kLanes + j];
          }
        }
      }
    };
    const int64_t whole_tiles = in / kRows * kRows;
    for (int64_t first = 0; first < whole_tiles; first += a.Segment()) {
      ForRowTiles(first, std::min(whole_tiles, first + a.Segment()), tile_at);
    }
    if (whole_tiles < in) tile_at(whole_tiles, std::integral_constant<int, kRows>());
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_DENSE_LAYER_INL_H_
