#include "lopt/lopt/orthogonal_steps_kernel.h"

#include <cmath>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/lopt/orthogonal_steps_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/lanes-inl.h"
#include "lopt/lopt/newton_schulz-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

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
  const float size = std::sqrt(SumOfSquares(step, rows * padded));
  if (size == 0) return;
  const V one = hn::Set(d, 1 / size);
  for (int64_t i = 0; i < rows * padded; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, step + i), one), d, step + i);
  }
  const float* x = Orthogonal(rows, columns, step, scratch);
  const V scale = hn::Set(d, size / std::sqrt(SumOfSquares(x, rows * padded)));
  for (int64_t row = 0; row < rows; ++row) {
    ForVectors(columns, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
      const int64_t at = row * columns + i;
      const V next = hn::NegMulAdd(scale, hn::LoadU(d, x + row * padded + i),
                                   LoadSome<kWhole>(before + at, n));
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
