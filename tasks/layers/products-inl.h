// Per-target header of Highway kernels, as base/vector_math-inl.h: products of matrices in tiles
// that stay in registers.
#if defined(LOPT_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_PRODUCTS_INL_H_
#undef LOPT_PRODUCTS_INL_H_
#else
#define LOPT_PRODUCTS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "lopt/base/dispatch.h"
#include "lopt/base/vector_math-inl.h"
#include "lopt/base/workspace.h"

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
// Tiles of half as many rows more hide the latency of their sums better, where sixteen registers
// hold them because a multiply-add needs none for the product.
constexpr int kTallRows = kRows == 4 && HWY_NATIVE_FMA ? 6 : kRows;
static_assert(kTallRows == kRows || 2 * kTallRows == 3 * kRows);
constexpr int kMaxClassRows = kManyRegisters ? 10 : 5;

HWY_INLINE int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

constexpr int64_t kFloatsPerLine = 16;               // of cache
constexpr int64_t kPrefetched = 4 * kFloatsPerLine;  // of a row read through a pointer
constexpr int64_t kRowsAhead = 16;                   // that are asked for before they are needed

// kV vectors for each of kR rows. The constructor is written out since g++ compiles an implicit one
// for the target of the end of the file, where NEON's vectors, which have constructors, are none.
template <int kR, int kV>
struct Tile {
  static constexpr int kVectors = kR * kV;
  HWY_INLINE Tile() {}  // NOLINT: a defaulted one is like an implicit one
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
// elements of one row lie side by side. kMayPace: a product with it may pace its stores.
// kStride: how far apart the rows are, 0 if that is not known to the compiler.

// Rows read through pointers.
struct RowPointers {
  static constexpr bool kMayPace = true;
  static constexpr int64_t kStride = 0;
  static int64_t Segment() { return int64_t{1} << 40; }
  const float* const* rows;
  const float* At(int64_t row, int64_t column) const { return rows[row] + column; }
  // Asks for the rows [row, last); of long ones for the start, where the hardware takes over.
  void Prefetch(int64_t row, int64_t last, int64_t features) const {
    const int64_t end = std::min<int64_t>(features, kPrefetched);
    for (int64_t r = row; r < last; ++r) {
      for (int64_t i = 0; i < end; i += kFloatsPerLine) hwy::Prefetch(rows[r] + i);
    }
  }
};

// Rows of a matrix of panels.
struct Units {
  static constexpr bool kMayPace = true;
  static constexpr int64_t kStride = kWidth;
  static int64_t Segment() { return kWidth; }
  PanelMatrix matrix;
  const float* At(int64_t row, int64_t column) const {
    return matrix.Panel(column / kWidth) + row * kWidth + column % kWidth;
  }
  void Prefetch(int64_t, int64_t, int64_t) const {}
};

struct PlainRows {
  static constexpr bool kMayPace = true;
  static constexpr int64_t kStride = 0;
  static int64_t Segment() { return int64_t{1} << 40; }
  const float* data;
  int64_t stride;
  const float* At(int64_t row, int64_t column) const { return data + row * stride + column; }
  void Prefetch(int64_t, int64_t, int64_t) const {}
};

// The loops of what follows are unrolled, not calls of lambdas, in which g++ 12 leaves copies of
// these vectors in memory and reads them there for every product.

// tile += column a of kR numbers times the row at `panel`.
template <int kR, int kV, class Element>
HWY_INLINE void MulAddRows(const Element& a, const float* panel, Tile<kR, kV>* tile) {
  static_assert(kV <= 2);
  const V first = hn::LoadU(d, panel);
  const V last = hn::LoadU(d, panel + (kV - 1) * kLanes);
  HWY_UNROLL(16)
  for (int r = 0; r < kR; ++r) {
    const V x = hn::Set(d, a(r));
    V* sums = tile->sums + kV * r;
    sums[0] = hn::MulAdd(x, first, sums[0]);
    if constexpr (kV == 2) sums[1] = hn::MulAdd(x, last, sums[1]);
  }
}

// Where kR rows from `row` on begin, at a column.
template <int kR, class Left>
struct RowStarts {
  static constexpr int Known() {
    if (Left::kStride != 0) return 1;
    return kR;
  }
  static constexpr int kKnown = Known();
  HWY_INLINE RowStarts(const Left& a, int64_t row, int64_t column) {
    HWY_UNROLL(16)
    for (int r = 0; r < kKnown; ++r) starts[r] = a.At(row + r, column);
  }
  HWY_INLINE float At(int r, int64_t k) const {
    return kKnown == 1 ? starts[0][r * Left::kStride + k] : starts[r][k];
  }
  const float* starts[kKnown];
};

// tile += rows [row, row + kR) of a, times the panel's rows [0, depth).
template <int kR, int kV, class Left>
HWY_INLINE void AddProduct(const Left& a, int64_t row, int64_t depth, const float* panel,
                           Tile<kR, kV>* tile) {
  const int64_t segment = a.Segment();
  for (int64_t first = 0; first < depth; first += segment) {
    const RowStarts<kR, Left> starts(a, row, first);
    const int64_t count = std::min(depth - first, segment);
    HWY_UNROLL(1)
    for (int64_t k = 0; k < count; ++k) {
      MulAddRows([&](int r) HWY_ATTR { return starts.At(r, k); }, panel + (first + k) * kWidth,
                 tile);
    }
  }
}

// tile += columns [column, column + kR) of a, transposed, times the panel's rows [0, depth). The
// columns are in one segment.
template <int kR, int kV, class Left>
HWY_INLINE void AddTransposedProduct(const Left& a, int64_t column, int64_t depth,
                                     const float* panel, Tile<kR, kV>* tile) {
  HWY_UNROLL(1)
  for (int64_t k = 0; k < depth; ++k) {
    const float* start = a.At(k, column);
    MulAddRows([&](int r) HWY_ATTR { return start[r]; }, panel + k * kWidth, tile);
  }
}

// The last so many steps of a product whose stores are paced (base/isa.h) are between them.
constexpr int kPacedSteps = 2;

// Adds those steps to two rows of a tile at a time, then calls store(row, v, sums) for their
// vectors. element(k, r) is the left factor's number at step k of these.
template <int kR, int kV, class Element, class Store>
HWY_INLINE void FinishProduct(const Element& element, const float* panel, Tile<kR, kV>* tile,
                              const Store& store) {
  static_assert(kR % 2 == 0);
  HWY_UNROLL(8)
  for (int pair = 0; pair < kR; pair += 2) {
    HWY_UNROLL(2)
    for (int k = 0; k < kPacedSteps; ++k) {
      HWY_UNROLL(2)
      for (int r = pair; r < pair + 2; ++r) {
        const V x = hn::Set(d, element(k, r));
        HWY_UNROLL(2)
        for (int v = 0; v < kV; ++v) {
          const V row = hn::LoadU(d, panel + k * kWidth + v * kLanes);
          tile->sums[kV * r + v] = hn::MulAdd(x, row, tile->sums[kV * r + v]);
        }
      }
    }
    HWY_UNROLL(2)
    for (int r = pair; r < pair + 2; ++r) {
      HWY_UNROLL(2)
      for (int v = 0; v < kV; ++v) store(r, v, tile->sums[kV * r + v]);
    }
  }
}

// As AddProduct, with paced stores.
template <int kR, int kV, class Left, class Store>
HWY_INLINE void PacedProduct(const Left& a, int64_t row, int64_t depth, const float* panel,
                             Tile<kR, kV>* tile, const Store& store) {
  const int64_t before = depth - kPacedSteps;
  AddProduct(a, row, before, panel, tile);
  const RowStarts<kR, Left> starts(a, row, before);
  FinishProduct([&](int k, int r) HWY_ATTR { return starts.At(r, k); }, panel + before * kWidth,
                tile, store);
}

// As AddTransposedProduct, with paced stores.
template <int kR, int kV, class Left, class Store>
HWY_INLINE void PacedTransposedProduct(const Left& a, int64_t column, int64_t depth,
                                       const float* panel, Tile<kR, kV>* tile, const Store& store) {
  const int64_t before = depth - kPacedSteps;
  AddTransposedProduct(a, column, before, panel, tile);
  const float* starts[kPacedSteps];
  for (int k = 0; k < kPacedSteps; ++k) starts[k] = a.At(before + k, column);
  FinishProduct([&](int k, int r) HWY_ATTR { return starts[k][r]; }, panel + before * kWidth, tile,
                store);
}

// Calls body with whether stores are paced, as a constant. The last steps of a paced product lie in
// one segment.
template <class Left, class Body>
HWY_INLINE void WithPace(int64_t depth, int64_t segment, const Body& body) {
  if constexpr (kLanes == 16 && Left::kMayPace) {
    const int64_t last = std::max<int64_t>(depth - 1, 0) / segment * segment;
    if (PacesStores(HWY_TARGET) && depth - last >= kPacedSteps) return body(std::true_type());
  }
  body(std::false_type());
}

// Calls body(row, kR) for tiles of kR rows that cover [first, last) and, of what comes behind, only
// as much as makes it a multiple of kRows.
template <class Body>
HWY_INLINE void ForRowTiles(int64_t first, int64_t last, const Body& body) {
  if constexpr (kTallRows > kRows) {
    const int64_t tiles = (last - first + kRows - 1) / kRows;
    const int64_t end = first + (tiles - tiles % 3) * kRows;
    for (; first < end; first += kTallRows) body(first, std::integral_constant<int, kTallRows>());
  }
  for (; first < last; first += kRows) body(first, std::integral_constant<int, kRows>());
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

// Copies `rows` rows of `columns` numbers.
HWY_MAYBE_UNUSED static void CopyRows(const RowPointers& from, int64_t rows, int64_t columns,
                                      PanelMatrix to) {
  for (int64_t p = 0; p * kWidth < columns; ++p) {
    const int64_t valid = std::min(kWidth, columns - p * kWidth);
    for (int64_t row = 0; row < rows; ++row) {
      float* at = to.Panel(p) + row * kWidth;
      std::fill(std::copy_n(from.At(row, p * kWidth), valid, at), at + kWidth, 0.0f);
    }
  }
}

// Zeros in rows [first, matrix.rows).
HWY_MAYBE_UNUSED static void ClearRows(PanelMatrix matrix, int64_t columns, int64_t first) {
  for (int64_t p = 0; p * kWidth < columns; ++p) {
    std::fill(matrix.Panel(p) + first * kWidth, matrix.Panel(p) + matrix.rows * kWidth, 0.0f);
  }
}

// A matrix with room for `rows` rows.
HWY_MAYBE_UNUSED static PanelMatrix TakePanels(int64_t rows, int64_t columns, Workspace& scratch) {
  const int64_t panels = (columns + kWidth - 1) / kWidth;
  return {scratch.Take<float>(panels * rows * kWidth).data(), rows};
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_PRODUCTS_INL_H_
