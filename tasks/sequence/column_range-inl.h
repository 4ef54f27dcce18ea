// Per-target header of Highway kernels, as base/vector_math-inl.h: some columns of some rows of a
// matrix of panels, as rows of their own.
#if defined(LOPT_COLUMN_RANGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_COLUMN_RANGE_INL_H_
#undef LOPT_COLUMN_RANGE_INL_H_
#else
#define LOPT_COLUMN_RANGE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "lopt/tasks/layers/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// Numbers [first, first + size) of the rows [row, row + rows).
struct ColumnRange {
  PanelMatrix matrix;
  int64_t row;
  int64_t rows;
  int64_t first;
  int64_t size;
};

// Calls body(k, count, at) for the runs of numbers [k, k + count) of the range that lie side by
// side in a row: those of its row i are at `at` + i kWidth.
template <class Body>
HWY_INLINE void ForRuns(const ColumnRange& range, const Body& body) {
  for (int64_t k = 0; k < range.size;) {
    const int64_t column = range.first + k;
    const int64_t count = std::min(range.size - k, kWidth - column % kWidth);
    body(k, count, range.matrix.Panel(column / kWidth) + range.row * kWidth + column % kWidth);
    k += count;
  }
}

// to [rows, stride] = the range.
HWY_MAYBE_UNUSED static HWY_NOINLINE void CopyColumns(const ColumnRange& range, float* to,
                                                      int64_t stride) {
  ForRuns(range, [&](int64_t k, int64_t count, const float* from) {
    for (int64_t i = 0; i < range.rows; ++i) {
      std::copy_n(from + i * kWidth, count, to + i * stride + k);
    }
  });
}

// The range = from [rows, stride].
HWY_MAYBE_UNUSED static HWY_NOINLINE void WriteColumns(const float* from, int64_t stride,
                                                       const ColumnRange& range) {
  ForRuns(range, [&](int64_t k, int64_t count, float* to) {
    for (int64_t i = 0; i < range.rows; ++i) {
      std::copy_n(from + i * stride + k, count, to + i * kWidth);
    }
  });
}

// Calls body(row, at) for the rows [0, count) of a matrix, at(k) its number in column k.
template <class Body>
HWY_INLINE void ForRows(PanelMatrix matrix, int64_t count, const Body& body) {
  for (int64_t row = 0; row < count; ++row) {
    body(row,
         [&](int64_t k) -> float& { return matrix.Panel(k / kWidth)[row * kWidth + k % kWidth]; });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_COLUMN_RANGE_INL_H_
