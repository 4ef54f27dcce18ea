#include "lopt/lopt/rules/orthogonal_steps_kernel.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/lopt/rules/orthogonal_steps_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/celo2/newton_schulz-inl.h"
#include "lopt/lopt/network/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// The largest absolute value of `count` numbers.
float Largest(const float* x, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

// x <- factor x, of `count` numbers, a multiple of kLanes.
HWY_INLINE void Multiply(float factor, int64_t count, float* x) {
  const V factors = hn::Set(d, factor);
  for (int64_t i = 0; i < count; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), factors), d, x + i);
  }
}

void MakeOrthogonal(int64_t rows, int64_t columns, const float* before, float* params,
                    Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const int64_t padded = PaddedToLanes(columns);
  float* step = scratch.Take<float>(rows * padded).data();
  for (int64_t row = 0; row < rows; ++row) {
    ForVectors(columns, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
      const int64_t at = row * columns + i;
      // Places behind the end are zeros in both.
      hn::StoreU(hn::Sub(LoadSome<kWhole>(before + at, n), LoadSome<kWhole>(params + at, n)), d,
                 step + row * padded + i);
    });
  }
  float squares = SumOfSquares(step, rows * padded);
  // Where float32 is too small or too coarse for the squares, steps are in units of the largest.
  const bool in_units = squares < FLT_MIN || squares > FLT_MAX;
  V unit = hn::Set(d, 1.0f);
  if (in_units) {
    const float largest = Largest(step, rows * padded);
    if (largest == 0) return;
    unit = hn::Set(d, largest);
    for (int64_t i = 0; i < rows * padded; i += kLanes) {
      hn::StoreU(hn::Div(hn::LoadU(d, step + i), unit), d, step + i);
    }
    squares = SumOfSquares(step, rows * padded);
  }
  const float size = std::sqrt(squares);
  Multiply(1 / size, rows * padded, step);
  const float* x = Orthogonal(rows, columns, step, scratch);
  const V scale = hn::Set(d, size / std::sqrt(SumOfSquares(x, rows * padded)));
  for (int64_t row = 0; row < rows; ++row) {
    ForVectors(columns, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
      const int64_t at = row * columns + i;
      const V change = hn::LoadU(d, x + row * padded + i);
      const V old = LoadSome<kWhole>(before + at, n);
      const V next = in_units ? hn::NegMulAdd(unit, hn::Mul(scale, change), old)
                              : hn::NegMulAdd(scale, change, old);
      StoreSome<kWhole>(next, params + at, n);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {
HWY_EXPORT(MakeOrthogonal);
}  // namespace

void MakeStepOrthogonal(int64_t rows, int64_t columns, const float* before, float* params,
                        Workspace& scratch) {
  LOPT_DISPATCH(MakeOrthogonal)(rows, columns, before, params, scratch);
}

}  // namespace lopt
#endif  // HWY_ONCE
