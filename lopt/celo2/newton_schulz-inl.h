// Per-target header of Highway kernels, as base/vector_math-inl.h: the Newton-Schulz iteration of
// Celo2.
#if defined(LOPT_NEWTON_SCHULZ_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_NEWTON_SCHULZ_INL_H_
#undef LOPT_NEWTON_SCHULZ_INL_H_
#else
#define LOPT_NEWTON_SCHULZ_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "lopt/base/dispatch.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/celo2/celo2.h"
#include "lopt/lopt/network/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

constexpr int64_t PaddedToLanes(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// C = added_factor added + factor A B, where A has `rows` rows and `inner` columns, B and C have
// `columns` columns, a multiple of kLanes. `added` has the rows of C or is null. Rows of B, C and
// `added` are `stride` apart; A's element (i, k) is at a[i a_row + k a_column]. `symmetric`: the
// first `rows` columns of C equal their transpose, bit by bit, as those of X^T X do, whose elements
// (i, j) and (j, i) are sums of the same products in the same order; half of them are copied.
struct MatrixProductTask {
  const float* a;
  int64_t a_row;
  int64_t a_column;
  const float* b;
  float* c;
  const float* added;
  float added_factor;
  float factor;
  int64_t stride;
  int64_t rows;
  int64_t inner;
  int64_t columns;
  bool symmetric;
};

constexpr int kProductRows = kManyRegisters ? 8 : 4;
constexpr int kProductVectors = 3;

// Narrow products cost less in full.
HWY_INLINE bool HalfIsCopied(const MatrixProductTask& task) {
  return task.symmetric && task.columns >= 2 * kProductVectors * kLanes;
}

// Rows of B that one pass over C uses: kProductVectors vectors of each, 24 KB, stay in the
// first-level cache.
constexpr int64_t kProductPanel = 2048 / kLanes;
// From so many rows of C on, these vectors are copied to one place first: a stride that is a power
// of two would put them all into few sets of the cache.
constexpr int64_t kRowsWorthPacking = 64;

// Rows [first, end) of B, of which row k has kV vectors of columns at b + (k - first) stride.
struct ProductPanel {
  const float* b;
  int64_t stride;
  int64_t first;
  int64_t end;
};

// kRows rows and kV vectors of C from column j on, of a panel.
template <int kRows, int kV>
HWY_NOINLINE void ProductTile(const MatrixProductTask& task, const ProductPanel& panel, int64_t i,
                              int64_t j) {
  const int64_t first = panel.first;
  const int64_t end = panel.end;
  float* c = task.c + i * task.stride + j;
  V tile[kRows][kV];
  HWY_UNROLL(8)
  for (int row = 0; row < kRows; ++row) {
    HWY_UNROLL(3)
    for (int v = 0; v < kV; ++v) {
      tile[row][v] = first == 0 ? hn::Zero(d) : hn::LoadU(d, c + row * task.stride + v * kLanes);
    }
  }
  const float* HWY_RESTRICT a = task.a + i * task.a_row + first * task.a_column;
  const float* HWY_RESTRICT b = panel.b;
  HWY_UNROLL(1)
  for (int64_t k = first; k < end; ++k) {
    V right[kV];
    for (int v = 0; v < kV; ++v) right[v] = hn::LoadU(d, b + v * kLanes);
    HWY_UNROLL(8)
    for (int row = 0; row < kRows; ++row) {
      const V left = hn::Set(d, a[row * task.a_row]);
      HWY_UNROLL(3)
      for (int v = 0; v < kV; ++v) tile[row][v] = hn::MulAdd(left, right[v], tile[row][v]);
    }
    a += task.a_column;
    b += panel.stride;
  }
  const bool last = end == task.inner && task.added != nullptr;
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v < kV; ++v) {
      const int64_t at = row * task.stride + v * kLanes;
      V value = tile[row][v];
      if (last) {
        const V added = hn::LoadU(d, task.added + i * task.stride + j + at);
        value = hn::MulAdd(hn::Set(d, task.added_factor), added,
                           hn::Mul(hn::Set(d, task.factor), value));
      }
      hn::StoreU(value, d, c + at);
    }
  }
}

// Rows [i, rows) of C, kRows at a time while there are so many, then half as many.
template <int kRows, int kV>
HWY_INLINE void ProductRows(const MatrixProductTask& task, const ProductPanel& panel, int64_t rows,
                            int64_t i, int64_t j) {
  for (; i + kRows <= rows; i += kRows) ProductTile<kRows, kV>(task, panel, i, j);
  if constexpr (kRows > 1) ProductRows<kRows / 2, kV>(task, panel, rows, i, j);
}

// kV vectors of C from column j on. `packed`: kProductPanel kProductVectors vectors of memory.
template <int kV>
HWY_INLINE void ProductColumns(const MatrixProductTask& task, int64_t j, int64_t first, int64_t end,
                               float* HWY_RESTRICT packed) {
  // Below are elements whose transposed ones lie in columns to come.
  const int64_t rows = HalfIsCopied(task) ? std::min(task.rows, j + kV * kLanes) : task.rows;
  ProductPanel panel = {task.b + first * task.stride + j, task.stride, first, end};
  if (rows >= kRowsWorthPacking && task.stride > kV * kLanes) {
    for (int64_t k = first; k < end; ++k) {
      for (int v = 0; v < kV; ++v) {
        hn::StoreU(hn::LoadU(d, panel.b + (k - first) * task.stride + v * kLanes), d,
                   packed + ((k - first) * kV + v) * kLanes);
      }
    }
    panel.b = packed;
    panel.stride = kV * kLanes;
  }
  // One vector wide, a tile needs more rows: with few sums a multiply-add waits for the last one.
  ProductRows<kV == 1 ? 8 : kProductRows, kV>(task, panel, rows, 0, j);
}

// c[i, j] = c[j, i] for j < i < size.
HWY_INLINE void MirrorUpperHalf(int64_t size, int64_t stride, float* c) {
  constexpr int64_t kSquare = 16;
  for (int64_t first_row = 0; first_row < size; first_row += kSquare) {
    const int64_t end_row = std::min(size, first_row + kSquare);
    for (int64_t first = 0; first <= first_row; first += kSquare) {
      for (int64_t i = first_row; i < end_row; ++i) {
        const int64_t end = std::min(i, first + kSquare);
        for (int64_t j = first; j < end; ++j) c[i * stride + j] = c[j * stride + i];
      }
    }
  }
}

// `packed`: as ProductColumns has it.
HWY_INLINE void MultiplyMatrices(const MatrixProductTask& task, float* packed) {
  const bool small = !kManyRegisters && HasSmallTiles(HWY_TARGET);
  for (int64_t first = 0; first < task.inner; first += kProductPanel) {
    const int64_t end = std::min(task.inner, first + kProductPanel);
    // Three vectors at a time, or two where tiles are small. The last three stay together, and the
    // last four are two and two: one alone would take longer.
    for (int64_t j = 0; j < task.columns;) {
      const int64_t vectors = (task.columns - j) / kLanes;
      if (vectors == kProductVectors || (vectors > kProductVectors + 1 && !small)) {
        ProductColumns<kProductVectors>(task, j, first, end, packed);
        j += kProductVectors * kLanes;
      } else if (vectors >= 2) {
        ProductColumns<2>(task, j, first, end, packed);
        j += 2 * kLanes;
      } else {
        ProductColumns<1>(task, j, first, end, packed);
        j += kLanes;
      }
    }
  }
  if (HalfIsCopied(task)) MirrorUpperHalf(task.rows, task.stride, task.c);
}

// to[j, i] = from[i, j] for [rows, columns]; rows of `to` are padded by zeros.
HWY_INLINE void Transpose(const float* HWY_RESTRICT from, int64_t rows, int64_t columns,
                          float* HWY_RESTRICT to) {
  constexpr int64_t kSquare = 16;
  const int64_t from_stride = PaddedToLanes(columns);
  const int64_t to_stride = PaddedToLanes(rows);
  for (int64_t first_column = 0; first_column < columns; first_column += kSquare) {
    const int64_t end_column = std::min(columns, first_column + kSquare);
    for (int64_t first = 0; first < rows; first += kSquare) {
      const int64_t end = std::min(rows, first + kSquare);
      for (int64_t j = first_column; j < end_column; ++j) {
        for (int64_t i = first; i < end; ++i) to[j * to_stride + i] = from[i * from_stride + j];
      }
    }
    for (int64_t j = first_column; j < end_column; ++j) {
      std::fill(to + j * to_stride + rows, to + (j + 1) * to_stride, 0.0f);
    }
  }
}

// Five iterations on a matrix with no more columns than rows, which are padded by zeros to whole
// vectors. With X as Celo2 has it, this is its transpose, and X X^T is X^T X here: then no product
// needs a transposed matrix. `packed`: as ProductColumns has it. Returns the one of `x` and `spare`
// that has the result.
HWY_INLINE float* IterateNewtonSchulz(int64_t rows, int64_t columns, float* x, float* spare,
                                      float* gram, float* polynomial, float* packed) {
  const int64_t stride = PaddedToLanes(columns);
  const float norm = std::sqrt(SumOfSquares(x, rows * stride)) + Celo2::kNormEpsilon;
  for (int64_t i = 0; i < rows * stride; i += kLanes) {
    hn::StoreU(hn::Div(hn::LoadU(d, x + i), hn::Set(d, norm)), d, x + i);
  }
  for (int iteration = 0; iteration < Celo2::kIterations; ++iteration) {
    MatrixProductTask task = {.a = x,
                              .a_row = 1,
                              .a_column = stride,
                              .b = x,
                              .c = gram,
                              .added = nullptr,
                              .added_factor = 0,
                              .factor = 1,
                              .stride = stride,
                              .rows = columns,
                              .inner = rows,
                              .columns = stride,
                              .symmetric = true};
    MultiplyMatrices(task, packed);
    task.a = gram;
    task.a_row = stride;
    task.a_column = 1;
    task.b = gram;
    task.c = polynomial;
    task.added = gram;
    task.added_factor = Celo2::kPolynomial[1];
    task.factor = Celo2::kPolynomial[2];
    task.inner = columns;
    MultiplyMatrices(task, packed);
    task.a = x;
    task.b = polynomial;
    task.c = spare;
    task.added = x;
    task.added_factor = Celo2::kPolynomial[0];
    task.factor = 1;
    task.rows = rows;
    task.symmetric = false;
    MultiplyMatrices(task, packed);
    std::swap(x, spare);
  }
  return x;
}

// Makes a matrix nearly orthogonal, whose rows are padded by zeros to whole vectors; so are those
// of the result, which is in `x` or in the scratch.
HWY_INLINE float* Orthogonal(int64_t rows, int64_t columns, float* x, Workspace& scratch) {
  const int64_t tall = std::max(rows, columns);
  const int64_t narrow = std::min(rows, columns);
  const int64_t padded = PaddedToLanes(narrow);
  const auto take = [&](int64_t size) { return scratch.Take<float>(size).data(); };
  float* spare = take(tall * padded);
  float* gram = take(narrow * padded);
  float* polynomial = take(narrow * padded);
  float* packed = take(kProductPanel * kProductVectors * kLanes);
  if (rows >= columns) {
    return IterateNewtonSchulz(rows, columns, x, spare, gram, polynomial, packed);
  }
  float* transposed = take(tall * padded);
  Transpose(x, rows, columns, transposed);
  const float* result =
      IterateNewtonSchulz(tall, narrow, transposed, spare, gram, polynomial, packed);
  Transpose(result, tall, narrow, x);
  return x;
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_NEWTON_SCHULZ_INL_H_
