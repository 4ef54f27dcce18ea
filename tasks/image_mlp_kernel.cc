#include "tasks/image_mlp_kernel.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tasks/image_mlp_kernel.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/vector_math-inl.h"

#ifndef LOPT_IMAGE_MLP_KERNEL_ONCE
#define LOPT_IMAGE_MLP_KERNEL_ONCE
namespace lopt {

// Examples that one pass works on; a larger batch takes several.
constexpr int64_t kChunk = 256;

constexpr int64_t kFloatsPerLine = 16;               // of cache
constexpr int64_t kPrefetched = 4 * kFloatsPerLine;  // of an image

// One pass: examples [0, count) of `rows` and `labels`, whose loss and gradient count as one part
// in 1 / scale.
struct MlpPass {
  const MlpShape& shape;
  const float* params;
  std::span<const float* const> rows;
  std::span<const int32_t> labels;
  float scale;
  float* gradient;  // null: not wanted
  bool add;         // to the gradient that is there
};

struct MlpSums {
  double loss = 0;
  int64_t correct = 0;
};

}  // namespace lopt
#endif  // LOPT_IMAGE_MLP_KERNEL_ONCE

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;
constexpr int64_t kLanes = HWY_LANES(float);

// Products are computed in tiles of kRows rows by one panel of kWidth columns, held in registers. A
// matrix is stored as panels: columns [p kWidth, (p + 1) kWidth) of all rows, row after row. The
// columns that fill up the last panel are zero; where they are a whole vector, it is left out of
// the tile.
constexpr int64_t kWidth = 2 * kLanes;
constexpr bool kManyRegisters = kLanes == 16 || HWY_ARCH_ARM_A64;
constexpr int kRows = kManyRegisters ? 8 : kLanes > 1 ? 4 : 2;
static_assert(kWidth % kRows == 0);
constexpr int kMaxClassRows = kManyRegisters ? 10 : 5;

HWY_INLINE int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// kV vectors for each of kR rows.
template <int kR, int kV>
struct Tile {
  static constexpr int kVectors = kR * kV;
  V sums[kVectors];
};

// body(0), ..., body(n - 1) with constants, so that arrays of vectors stay in registers.
template <class Body, int... i>
HWY_INLINE void UnrolledOver(std::integer_sequence<int, i...>, const Body& body) {
  (body(std::integral_constant<int, i>()), ...);
}
template <int n, class Body>
HWY_INLINE void Unrolled(const Body& body) {
  UnrolledOver(std::make_integer_sequence<int, n>(), body);
}

struct PanelMatrix {
  float* data;
  int64_t rows;  // room for so many
  float* Panel(int64_t p) const { return data + p * rows * kWidth; }
};

// The left factor of a product by its elements a(row, k). A segment is a run of k in which the
// elements of one row lie side by side.

struct Images {
  static constexpr int64_t kSegment = int64_t{1} << 40;
  const float* const* rows;
  const float* At(int64_t row, int64_t column) const { return rows[row] + column; }
  // Asks for the rows of a tile; of long ones for the start, where the hardware takes over.
  void Prefetch(int64_t row, int64_t features) const {
    const int64_t end = std::min<int64_t>(features, kPrefetched);
    for (int64_t r = row; r < row + kRows; ++r) {
      for (int64_t i = 0; i < end; i += kFloatsPerLine) hwy::Prefetch(rows[r] + i);
    }
  }
};

struct Units {
  static constexpr int64_t kSegment = kWidth;
  PanelMatrix matrix;
  const float* At(int64_t row, int64_t column) const {
    return matrix.Panel(column / kWidth) + row * kWidth + column % kWidth;
  }
  void Prefetch(int64_t, int64_t) const {}
};

struct PlainRows {
  static constexpr int64_t kSegment = int64_t{1} << 40;
  const float* data;
  int64_t stride;
  const float* At(int64_t row, int64_t column) const { return data + row * stride + column; }
};

// tile += column a of kR numbers times the row at `panel`.
template <int kR, int kV, class Element>
HWY_INLINE void MulAddRows(const Element& a, const float* panel, Tile<kR, kV>* tile) {
  V row[kV];
  Unrolled<kV>([&](auto v) HWY_ATTR { row[v] = hn::LoadU(d, panel + v * kLanes); });
  Unrolled<kR>([&](auto r) HWY_ATTR {
    const V x = hn::Set(d, a(r));
    Unrolled<kV>([&](auto v) HWY_ATTR {
      tile->sums[kV * r + v] = hn::MulAdd(x, row[v], tile->sums[kV * r + v]);
    });
  });
}

// tile += rows [row, row + kR) of a, times the panel's rows [0, depth).
template <int kR, int kV, class Left>
HWY_INLINE void AddProduct(const Left& a, int64_t row, int64_t depth, const float* panel,
                           Tile<kR, kV>* tile) {
  for (int64_t first = 0; first < depth; first += Left::kSegment) {
    const float* starts[kR];
    Unrolled<kR>([&](auto r) HWY_ATTR { starts[r] = a.At(row + r, first); });
    const int64_t count = std::min(depth - first, Left::kSegment);
    for (int64_t k = 0; k < count; ++k) {
      MulAddRows([&](auto r) HWY_ATTR { return starts[r][k]; }, panel + (first + k) * kWidth, tile);
    }
  }
}

// tile += columns [column, column + kR) of a, transposed, times the panel's rows [0, depth). The
// columns are in one segment.
template <int kR, int kV, class Left>
HWY_INLINE void AddTransposedProduct(const Left& a, int64_t column, int64_t depth,
                                     const float* panel, Tile<kR, kV>* tile) {
  for (int64_t k = 0; k < depth; ++k) {
    const float* start = a.At(k, column);
    MulAddRows([&](auto r) HWY_ATTR { return start[r]; }, panel + k * kWidth, tile);
  }
}

// Calls body(p, kV) for each panel of a matrix with so many columns, kV the vectors that hold some.
template <class Body>
HWY_INLINE void ForPanels(int64_t columns, const Body& body) {
  int64_t p = 0;
  for (; p * kWidth + kLanes < columns; ++p) body(p, std::integral_constant<int, 2>());
  if (p * kWidth < columns) body(p, std::integral_constant<int, 1>());
}

// Calls body with kR = the number of rows, 1 to kMaxClassRows.
template <int kR = 1, class Body>
HWY_INLINE void WithRows(int rows, const Body& body) {
  if constexpr (kR < kMaxClassRows) {
    if (rows != kR) return WithRows<kR + 1>(rows, body);
  }
  body(std::integral_constant<int, kR>());
}

// Cuts n rows into tiles of at most kMaxClassRows, as even as can be, and calls body(first, kR) for
// each.
template <class Body>
HWY_INLINE void ForClassTiles(int64_t n, const Body& body) {
  int64_t tiles = (n + kMaxClassRows - 1) / kMaxClassRows;
  for (int64_t first = 0; first < n; --tiles) {
    const int64_t rows = (n - first + tiles - 1) / tiles;
    WithRows(static_cast<int>(rows), [&](auto kR) HWY_ATTR { body(first, kR); });
    first += rows;
  }
}

// A panel of a row-major matrix [rows, columns]: itself where that is how it lies in memory, else a
// copy in `buffer` [rows, kWidth].
HWY_INLINE const float* Panel(const float* matrix, int64_t rows, int64_t columns, int64_t p,
                              float* buffer) {
  if (columns == kWidth) return matrix;
  const int64_t first = p * kWidth;
  const int64_t count = std::min(kWidth, columns - first);
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = matrix + row * columns + first;
    float* to = buffer + row * kWidth;
    if (count == kWidth) {
      hn::Store(hn::LoadU(d, from), d, to);
      hn::Store(hn::LoadU(d, from + kLanes), d, to + kLanes);
    } else {
      std::fill(std::copy_n(from, count, to), to + kWidth, 0.0f);
    }
  }
  return buffer;
}

// The same of the transposed matrix, [columns, kWidth].
HWY_INLINE void TransposedPanel(const float* matrix, int64_t rows, int64_t columns, int64_t p,
                                float* buffer) {
  const int64_t first = p * kWidth;
  const int64_t count = std::min(kWidth, rows - first);
  for (int64_t j = 0; j < count; ++j) {
    const float* from = matrix + (first + j) * columns;
    for (int64_t k = 0; k < columns; ++k) buffer[k * kWidth + j] = from[k];
  }
  if (count == kWidth) return;
  for (int64_t k = 0; k < columns; ++k) {
    std::fill(buffer + k * kWidth + count, buffer + (k + 1) * kWidth, 0.0f);
  }
}

// out = activation(a w + b) for rows [0, rows).
template <class Left>
HWY_NOINLINE void Forward(const Left& a, int64_t rows, int64_t in, int64_t columns, const float* w,
                          const float* b, Activation activation, PanelMatrix out, float* buffer) {
  ForPanels(columns, [&](int64_t p, auto kV) HWY_ATTR {
    const float* panel = Panel(w, in, columns, p, buffer);
    HWY_ALIGN float bias[kWidth] = {};
    std::copy_n(b + p * kWidth, std::min(kWidth, columns - p * kWidth), bias);
    float* to = out.Panel(p);
    for (int64_t row = 0; row < rows; row += kRows) {
      Tile<kRows, kV> tile;
      Unrolled<tile.kVectors>([&](auto i)
                                  HWY_ATTR { tile.sums[i] = hn::Load(d, bias + i % kV * kLanes); });
      if (p == 0 && row + kRows < rows) a.Prefetch(row + kRows, in);
      AddProduct(a, row, in, panel, &tile);
      if (activation == Activation::kRelu) {
        Unrolled<tile.kVectors>(
            [&](auto i) HWY_ATTR { tile.sums[i] = AtLeast(hn::Zero(d), tile.sums[i]); });
      }
      Unrolled<tile.kVectors>([&](auto i) HWY_ATTR {
        hn::Store(tile.sums[i], d, to + (row + i / kV) * kWidth + i % kV * kLanes);
      });
    }
    if (activation == Activation::kTanh) {
      for (int64_t row = 0; row < rows; ++row) {
        Unrolled<kV>([&](auto v) HWY_ATTR {
          float* at = to + row * kWidth + v * kLanes;
          hn::Store(Tanh(d, hn::Load(d, at)), d, at);
        });
      }
    }
  });
}

// The derivative of the activation, from its value, times the gradient.
HWY_INLINE V ActivationGradient(Activation activation, V value, V gradient) {
  if (activation == Activation::kRelu) {
    return hn::IfThenElseZero(hn::Gt(value, hn::Zero(d)), gradient);
  }
  return hn::Mul(hn::NegMulAdd(value, value, hn::Set(d, 1.0f)), gradient);
}

// Replaces the values of a layer's units by the gradient before the activation, from the gradient
// `a` of the next layer, whose weights are w [units, columns], for rows [0, rows). kTransposed: a
// is [columns, rows].
template <bool kTransposed, class Left>
HWY_NOINLINE void Backward(const Left& a, int64_t rows, int64_t units, int64_t columns,
                           const float* w, Activation activation, PanelMatrix values,
                           float* buffer) {
  ForPanels(units, [&](int64_t p, auto kV) HWY_ATTR {
    TransposedPanel(w, units, columns, p, buffer);
    float* to = values.Panel(p);
    for (int64_t row = 0; row < rows; row += kRows) {
      Tile<kRows, kV> tile;
      Unrolled<tile.kVectors>([&](auto i) HWY_ATTR { tile.sums[i] = hn::Zero(d); });
      if constexpr (kTransposed) {
        AddTransposedProduct(a, row, columns, buffer, &tile);
      } else {
        AddProduct(a, row, columns, buffer, &tile);
      }
      Unrolled<tile.kVectors>([&](auto i) HWY_ATTR {
        float* at = to + (row + i / kV) * kWidth + i % kV * kLanes;
        hn::Store(ActivationGradient(activation, hn::Load(d, at), tile.sums[i]), d, at);
      });
    }
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

// The gradient of a layer's weights and bias, w [in, columns] and b [columns], from its `count`
// inputs a and the gradient of its outputs.
template <class Left>
HWY_NOINLINE void WeightGradient(const Left& a, int64_t in, int64_t columns, int64_t count,
                                 PanelMatrix outputs, bool add, float* w, float* b) {
  ForPanels(columns, [&](int64_t p, auto kV) HWY_ATTR {
    const float* panel = outputs.Panel(p);
    const int64_t valid = std::min(kWidth, columns - p * kWidth);
    for (int64_t row = 0; row < in; row += kRows) {
      const int rows = static_cast<int>(std::min<int64_t>(kRows, in - row));
      float* to = w + row * columns + p * kWidth;
      Tile<kRows, kV> tile;
      if (rows == kRows && valid == kV * kLanes) {
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
    }
    ColumnSums<kV>(panel, count, valid, add, b + p * kWidth);
  });
}

// Transposes a block of kLanes x kLanes numbers; rows are kWidth apart in both.
template <int64_t kN = kLanes>
HWY_INLINE void TransposeBlock(const float* HWY_RESTRICT from, float* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  *to = *from;
#else
  const hn::RepartitionToWide<D> wide;
  // Within each 128-bit block, groups of four rows: row i of group g then holds columns i, i + 4,
  // ... of rows 4 g to 4 g + 3.
  V rows[kN];
  Unrolled<kN / 4>([&](auto group) HWY_ATTR {
    constexpr int g = 4 * group;
    const V r0 = hn::Load(d, from + g * kWidth);
    const V r1 = hn::Load(d, from + (g + 1) * kWidth);
    const V r2 = hn::Load(d, from + (g + 2) * kWidth);
    const V r3 = hn::Load(d, from + (g + 3) * kWidth);
    const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
    const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
    const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
    const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
    rows[g] = hn::BitCast(d, hn::InterleaveLower(wide, low01, low23));
    rows[g + 1] = hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23));
    rows[g + 2] = hn::BitCast(d, hn::InterleaveLower(wide, high01, high23));
    rows[g + 3] = hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23));
  });
  Unrolled<4>([&](auto i) HWY_ATTR {
    if constexpr (kN == 4) {
      hn::Store(rows[i], d, to + i * kWidth);
    } else if constexpr (kN == 8) {
      hn::Store(hn::ConcatLowerLower(d, rows[i + 4], rows[i]), d, to + i * kWidth);
      hn::Store(hn::ConcatUpperUpper(d, rows[i + 4], rows[i]), d, to + (i + 4) * kWidth);
    } else {
      static_assert(kN == 16);
      const V even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(rows[i + 4]), rows[i]);
      const V odd01 = hn::OddEvenBlocks(rows[i + 4], hn::SwapAdjacentBlocks(rows[i]));
      const V even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(rows[i + 12]), rows[i + 8]);
      const V odd23 = hn::OddEvenBlocks(rows[i + 12], hn::SwapAdjacentBlocks(rows[i + 8]));
      hn::Store(hn::ConcatLowerLower(d, even23, even01), d, to + i * kWidth);
      hn::Store(hn::ConcatLowerLower(d, odd23, odd01), d, to + (i + 4) * kWidth);
      hn::Store(hn::ConcatUpperUpper(d, even23, even01), d, to + (i + 8) * kWidth);
      hn::Store(hn::ConcatUpperUpper(d, odd23, odd01), d, to + (i + 12) * kWidth);
    }
  });
#endif
}

// Softmax of two vectors of examples, so that the work on one hides the latency of the other. The
// logits are at[c * stride]; they become the gradient of the losses, times `scale`. Gives the sum
// of exp(logit - largest), the label's logit minus the largest, and the first class of the largest.
HWY_INLINE void Softmax(int64_t classes, const int32_t* label, float scale, float* at,
                        int64_t stride, float* sum_out, float* chosen_out, int32_t* answer_out) {
  const hn::RebindToSigned<D> di;
  const auto one = hn::Set(di, 1);
  hn::Vec<decltype(di)> labels[2], answer[2];
  V largest[2], chosen[2], sum[2], inverse[2];
  Unrolled<2>([&](auto i) HWY_ATTR {
    labels[i] = hn::Load(di, label + i * kLanes);
    answer[i] = hn::Zero(di);
    largest[i] = chosen[i] = hn::Load(d, at + i * kLanes);
    sum[i] = hn::Zero(d);
  });
  auto number = one;
  for (int64_t c = 1; c < classes; ++c) {
    Unrolled<2>([&](auto i) HWY_ATTR {
      const V logit = hn::Load(d, at + c * stride + i * kLanes);
      const auto larger = hn::Gt(logit, largest[i]);
      largest[i] = hn::IfThenElse(larger, logit, largest[i]);
      answer[i] = hn::IfThenElse(hn::RebindMask(di, larger), number, answer[i]);
      chosen[i] = hn::IfThenElse(hn::RebindMask(d, hn::Eq(labels[i], number)), logit, chosen[i]);
    });
    number = hn::Add(number, one);
  }
  for (int64_t c = 0; c < classes; ++c) {
    Unrolled<2>([&](auto i) HWY_ATTR {
      float* logit = at + c * stride + i * kLanes;
      const V e = ExpOfAtMost88(d, hn::Sub(hn::Load(d, logit), largest[i]));
      sum[i] = hn::Add(sum[i], e);
      hn::Store(e, d, logit);
    });
  }
  Unrolled<2>([&](auto i) HWY_ATTR {
    inverse[i] = hn::Div(hn::Set(d, scale), sum[i]);
    hn::Store(sum[i], d, sum_out + i * kLanes);
    hn::Store(hn::Sub(chosen[i], largest[i]), d, chosen_out + i * kLanes);
    hn::Store(answer[i], di, answer_out + i * kLanes);
  });
  number = hn::Zero(di);
  for (int64_t c = 0; c < classes; ++c) {
    Unrolled<2>([&](auto i) HWY_ATTR {
      float* share = at + c * stride + i * kLanes;
      const auto is_label = hn::RebindMask(d, hn::Eq(labels[i], number));
      const V target = hn::IfThenElseZero(is_label, hn::Set(d, scale));
      hn::Store(hn::MulSub(hn::Load(d, share), inverse[i], target), d, share);
    });
    number = hn::Add(number, one);
  }
}

// The last layer, with examples in lanes: logits of the units, losses and `gradient` [classes,
// stride] with respect to the logits.
HWY_NOINLINE MlpSums LastLayer(const MlpPass& pass, PanelMatrix units, const float* w,
                               const float* b, float* gradient, int64_t stride, float* buffer) {
  const int64_t hidden = pass.shape.sizes[pass.shape.layers() - 1];
  const int64_t classes = pass.shape.sizes.back();
  const auto count = static_cast<int64_t>(pass.rows.size());
  for (int64_t first = 0; first < count; first += kWidth) {
    for (int64_t k = 0; k < hidden; k += kLanes) {
      const float* from = units.Panel(k / kWidth) + first * kWidth + k % kWidth;
      TransposeBlock(from, buffer + k * kWidth);
      TransposeBlock(from + kLanes * kWidth, buffer + k * kWidth + kLanes);
    }
    ForClassTiles(classes, [&](int64_t c, auto kR) HWY_ATTR {
      Tile<kR, 2> tile;
      Unrolled<2 * kR>([&](auto i) HWY_ATTR { tile.sums[i] = hn::Set(d, b[c + i / 2]); });
      AddTransposedProduct(PlainRows{w, classes}, c, hidden, buffer, &tile);
      Unrolled<2 * kR>([&](auto i) HWY_ATTR {
        hn::Store(tile.sums[i], d, gradient + (c + i / 2) * stride + first + i % 2 * kLanes);
      });
    });
  }
  HWY_ALIGN float sum[kChunk];
  HWY_ALIGN float chosen[kChunk];
  HWY_ALIGN int32_t answer[kChunk];
  for (int64_t first = 0; first < count; first += kWidth) {
    Softmax(classes, &pass.labels[first], pass.scale, gradient + first, stride, sum + first,
            chosen + first, answer + first);
  }
  for (int64_t i = 0; i < count; i += kLanes) {
    const V log_sum = LogOfNormal(d, hn::Load(d, sum + i));
    hn::Store(hn::Sub(log_sum, hn::Load(d, chosen + i)), d, chosen + i);
  }
  std::fill(chosen + count, chosen + RoundUp(count, 4), 0.0f);
  double loss[4] = {};
  for (int64_t i = 0; i < count; i += 4) {
    Unrolled<4>([&](auto j) HWY_ATTR { loss[j] += static_cast<double>(chosen[i + j]); });
  }
  MlpSums sums{.loss = (loss[0] + loss[1]) + (loss[2] + loss[3])};
  for (int64_t i = 0; i < count; ++i) {
    sums.correct += static_cast<int64_t>(answer[i] == pass.labels[i]) & (chosen[i] == chosen[i]);
  }
  return sums;
}

// The gradient of the last layer's weights w [hidden, classes] and bias.
HWY_NOINLINE void LastWeightGradient(const float* gradient, int64_t stride, PanelMatrix units,
                                     int64_t hidden, int64_t classes, int64_t count, bool add,
                                     float* w, float* b) {
  ForPanels(hidden, [&](int64_t p, auto kV) HWY_ATTR {
    const int64_t valid = std::min(kWidth, hidden - p * kWidth);
    ForClassTiles(classes, [&](int64_t c, auto kR) HWY_ATTR {
      Tile<kR, kV> tile;
      Unrolled<tile.kVectors>([&](auto i) HWY_ATTR { tile.sums[i] = hn::Zero(d); });
      AddProduct(PlainRows{gradient, stride}, c, count, units.Panel(p), &tile);
      HWY_ALIGN float whole[kMaxClassRows * kWidth] = {};
      Unrolled<tile.kVectors>([&](auto i)
                                  HWY_ATTR { hn::Store(tile.sums[i], d, whole + i * kLanes); });
      float* to = w + p * kWidth * classes + c;
      for (int64_t j = 0; j < valid; ++j) {
        for (int r = 0; r < kR; ++r) {
          float& at = to[j * classes + r];
          at = (add ? at : 0.0f) + whole[r * kV * kLanes + j];
        }
      }
    });
  });
  for (int64_t c = 0; c < classes; ++c) {
    V sum = hn::Zero(d);
    int64_t k = 0;
    for (; k + kLanes <= count; k += kLanes) {
      sum = hn::Add(sum, hn::Load(d, gradient + c * stride + k));
    }
    if (k < count) {
      const V rest = hn::Load(d, gradient + c * stride + k);
      sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(d, count - k), rest));
    }
    b[c] = (add ? b[c] : 0.0f) + hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// Without hidden layers the images take the place of the last units.
void CopyImages(const Images& images, int64_t rows, int64_t features, PanelMatrix units) {
  for (int64_t p = 0; p * kWidth < features; ++p) {
    const int64_t valid = std::min(kWidth, features - p * kWidth);
    for (int64_t row = 0; row < rows; ++row) {
      float* to = units.Panel(p) + row * kWidth;
      std::fill(std::copy_n(images.At(row, p * kWidth), valid, to), to + kWidth, 0.0f);
    }
  }
}

// Zeros in rows [first, units.rows).
void ClearRows(PanelMatrix units, int64_t columns, int64_t first) {
  for (int64_t p = 0; p * kWidth < columns; ++p) {
    std::fill(units.Panel(p) + first * kWidth, units.Panel(p) + units.rows * kWidth, 0.0f);
  }
}

MlpSums RunPass(const MlpPass& pass, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const std::vector<int64_t>& sizes = pass.shape.sizes;
  const Activation activation = pass.shape.activation;
  const int64_t last = pass.shape.layers() - 1;  // the last layer of weights
  const int64_t classes = sizes[last + 1];
  const auto count = static_cast<int64_t>(pass.rows.size());
  const int64_t rows = RoundUp(count, kRows);
  const int64_t capacity = RoundUp(count, kWidth);
  const int64_t widest = *std::max_element(sizes.begin(), sizes.end());
  const Images images{pass.rows.data()};
  float* buffer = scratch.Take<float>(RoundUp(widest, kLanes) * kWidth).data();
  float* logits = scratch.Take<float>(classes * capacity).data();
  const std::span<PanelMatrix> units = scratch.Take<PanelMatrix>(last + 1);
  for (int64_t l = 0; l <= last; ++l) {
    if (l == 0 && last > 0) continue;  // images are read where they are
    const int64_t panels = (sizes[l] + kWidth - 1) / kWidth;
    units[l] = {scratch.Take<float>(panels * capacity * kWidth).data(), capacity};
  }

  const float* w = pass.params;
  for (int64_t l = 0; l < last; ++l) {
    const float* b = w + sizes[l] * sizes[l + 1];
    if (l == 0) {
      Forward(images, rows, sizes[0], sizes[1], w, b, activation, units[1], buffer);
    } else {
      Forward(Units{units[l]}, rows, sizes[l], sizes[l + 1], w, b, activation, units[l + 1],
              buffer);
    }
    w = b + sizes[l + 1];
  }
  if (last == 0) CopyImages(images, rows, sizes[0], units[0]);
  ClearRows(units[last], sizes[last], rows);
  const float* b = w + sizes[last] * classes;
  const MlpSums sums = LastLayer(pass, units[last], w, b, logits, capacity, buffer);
  if (pass.gradient == nullptr) return sums;

  float* gradient = pass.gradient + (w - pass.params);
  LastWeightGradient(logits, capacity, units[last], sizes[last], classes, count, pass.add, gradient,
                     gradient + sizes[last] * classes);
  for (int64_t l = last - 1; l >= 0; --l) {
    if (l == last - 1) {
      Backward<true>(PlainRows{logits, capacity}, rows, sizes[last], classes, w, activation,
                     units[last], buffer);
    } else {
      Backward<false>(Units{units[l + 2]}, rows, sizes[l + 1], sizes[l + 2], w, activation,
                      units[l + 1], buffer);
    }
    w -= (sizes[l] + 1) * sizes[l + 1];
    gradient = pass.gradient + (w - pass.params);
    float* bias_gradient = gradient + sizes[l] * sizes[l + 1];
    if (l == 0) {
      WeightGradient(images, sizes[0], sizes[1], count, units[1], pass.add, gradient,
                     bias_gradient);
    } else {
      WeightGradient(Units{units[l]}, sizes[l], sizes[l + 1], count, units[l + 1], pass.add,
                     gradient, bias_gradient);
    }
  }
  return sums;
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(RunPass);

// Rows that a pass may read beyond its last example: those of a panel or a tile.
constexpr int64_t kSpareRows = 32;

}  // namespace

MlpResult MlpLoss(const MlpShape& shape, std::span<const float> params, const MlpBatch& batch,
                  std::span<float> gradient, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const std::span<const float*> rows = scratch.Take<const float*>(kChunk + kSpareRows);
  const std::span<int32_t> labels = scratch.Take<int32_t>(kChunk + kSpareRows);
  const auto count = static_cast<int64_t>(batch.examples.size());
  MlpSums sums;
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t part = std::min(kChunk, count - first);
    const int32_t* examples = &batch.examples[first];
    for (int64_t i = 0; i < part; ++i) rows[i] = batch.images + examples[i] * batch.stride;
    for (int64_t i = 0; i < std::min<int64_t>(part, 16); ++i) hwy::Prefetch(rows[i]);
    for (int64_t i = 0; i < part; ++i) labels[i] = batch.labels[examples[i]];
    std::fill_n(&rows[part], kSpareRows, rows[0]);
    std::fill_n(&labels[part], kSpareRows, 0);
    const MlpPass pass{.shape = shape,
                       .params = params.data(),
                       .rows = rows.first(part),
                       .labels = labels.first(part),
                       .scale = 1 / static_cast<float>(count),
                       .gradient = gradient.empty() ? nullptr : gradient.data(),
                       .add = first > 0};
    const MlpSums more = HWY_DYNAMIC_DISPATCH(RunPass)(pass, scratch);
    sums.loss += more.loss;
    sums.correct += more.correct;
  }
  return {static_cast<float>(sums.loss / static_cast<double>(count)), sums.correct};
}

}  // namespace lopt
#endif  // HWY_ONCE
