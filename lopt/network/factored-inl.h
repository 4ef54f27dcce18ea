// Per-target header of Highway kernels, as base/vector_math-inl.h: what lopt/network/factored.h
// computes of second moments that are factored, to rounding.
#if defined(LOPT_FACTORED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_FACTORED_INL_H_
#undef LOPT_FACTORED_INL_H_
#else
#define LOPT_FACTORED_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "lopt/lopt/network/factored.h"
#include "lopt/lopt/network/lanes-inl.h"
#include "lopt/lopt/network/mean_squares_device.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

HWY_INLINE V InverseRoot(V x) { return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)); }

HWY_INLINE V FlooredInverseRoot(V x) {
  return InverseRoot(AtLeast(hn::Set(d, kFactoredMomentFloor), x));
}

// A square, at most kLargestSquare. NaN stays.
HWY_INLINE V Bounded(V square) {
  const V largest = hn::Set(d, kLargestSquare);
  return hn::IfThenElse(hn::Gt(square, largest), largest, square);
}

// Adds the floored squares of g to `sums`, and returns their sum.
HWY_INLINE float AddFlooredSquares(const float* HWY_RESTRICT g, int64_t size,
                                   float* HWY_RESTRICT sums) {
  const V floor = hn::Set(d, kFactoredSquareFloor);
  V total = hn::Zero(d);
  ForVectors(size, [&]<bool kWhole>(int64_t i, int64_t count) HWY_ATTR {
    const V x = LoadSome<kWhole>(g + i, count);
    V square = Bounded(hn::MulAdd(x, x, floor));
    StoreSome<kWhole>(hn::Add(LoadSome<kWhole>(sums + i, count), square), sums + i, count);
    if constexpr (!kWhole) {
      square = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count)), square);
    }
    total = hn::Add(total, square);
  });
  return SumOfVector(total);
}

// The means over the largest axis (row) and over the second largest (col). Nothing of a tensor
// without elements.
HWY_INLINE void FastMeanSquares(const FactoredShape& shape, std::span<const float> gradient,
                                std::span<float> row, std::span<float> col) {
  if (gradient.empty()) return;
  const std::span<float> without_first = shape.largest_first ? row : col;
  const std::span<float> without_second = shape.largest_first ? col : row;
  std::ranges::fill(without_first, 0.0f);
  std::ranges::fill(without_second, 0.0f);
  const int64_t line = shape.second * shape.inner;
  const float* g = gradient.data();
  float* over_second = without_second.data();
  for (int64_t a = 0; a < shape.outer; ++a) {
    for (int64_t x = 0; x < shape.first; ++x) {
      float* over_first = without_first.data() + a * shape.middle * line;
      for (int64_t b = 0; b < shape.middle; ++b) {
        const float sum = AddFlooredSquares(g, line, over_first);
        if (shape.inner == 1) {
          *over_second = sum;
        } else {
          for (int64_t y = 0; y < line; y += shape.inner) {
            AddFlooredSquares(g + y, shape.inner, over_second);
          }
        }
        g += line;
        over_first += line;
        over_second += shape.inner;
      }
    }
  }
  const auto divide = [](std::span<float> sums, int64_t count) HWY_ATTR {
    const V divisor = hn::Set(d, static_cast<float>(count));
    ForVectors(std::ssize(sums), [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
      float* at = sums.data() + i;
      StoreSome<kWhole>(hn::Div(LoadSome<kWhole>(at, n), divisor), at, n);
    });
  };
  divide(without_first, shape.first);
  divide(without_second, shape.second);
}

// average <- decay average + (1 - decay) x.
HWY_INLINE void FastDecayAverage(float decay, std::span<const float> x, std::span<float> average) {
  const V kept = hn::Set(d, decay);
  const V added = hn::Set(d, 1.0f - decay);
  ForVectors(std::ssize(x), [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
    const V old = LoadSome<kWhole>(average.data() + i, n);
    const V change = hn::Mul(added, LoadSome<kWhole>(x.data() + i, n));
    StoreSome<kWhole>(hn::MulAdd(kept, old, change), average.data() + i, n);
  });
}

// The factors of moments. Nothing of a tensor without elements.
HWY_INLINE void FastFactoredRsqrt(const FactoredShape& shape, std::span<const float> v_row,
                                  std::span<const float> v_col, std::span<float> row_factors,
                                  std::span<float> col_factors) {
  if (v_row.empty() || v_col.empty()) return;
  ForVectors(std::ssize(v_col), [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
    const V v = LoadSome<kWhole>(v_col.data() + i, n);
    StoreSome<kWhole>(FlooredInverseRoot(v), col_factors.data() + i, n);
  });
  const int64_t axis = shape.row_axis();
  const int64_t after = shape.after_row_axis();
  const V count = hn::Set(d, static_cast<float>(axis));
  const V floor = hn::Set(d, kFactoredMomentFloor);
  for (int64_t block = 0; block < shape.row_size(); block += axis * after) {
    const float* v = v_row.data() + block;
    float* factors = row_factors.data() + block;
    if (after == 1) {
      V sum = hn::Zero(d);
      ForVectors(axis, [&]<bool kWhole>(int64_t i, int64_t n)
                           HWY_ATTR { sum = hn::Add(sum, LoadSome<kWhole>(v + i, n)); });
      const V mean = hn::Add(hn::Div(hn::SumOfLanes(d, sum), count), floor);
      ForVectors(axis, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
        const V ratio = hn::Div(LoadSome<kWhole>(v + i, n), mean);
        StoreSome<kWhole>(FlooredInverseRoot(ratio), factors + i, n);
      });
      continue;
    }
    ForVectors(after, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
      V sum = hn::Zero(d);
      for (int64_t k = 0; k < axis; ++k) {
        sum = hn::Add(sum, LoadSome<kWhole>(v + k * after + i, n));
      }
      const V mean = hn::Add(hn::Div(sum, count), floor);
      for (int64_t k = 0; k < axis; ++k) {
        const V ratio = hn::Div(LoadSome<kWhole>(v + k * after + i, n), mean);
        StoreSome<kWhole>(FlooredInverseRoot(ratio), factors + k * after + i, n);
      }
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_FACTORED_INL_H_
