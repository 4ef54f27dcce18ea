#include "lopt/tasks/augment/drawn_kernel.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/tasks/augment/drawn_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct Larger {
  HWY_INLINE float operator()(float a, float b) const { return a > b ? a : b; }
};
struct Smaller {
  HWY_INLINE float operator()(float a, float b) const { return a < b ? a : b; }
};

// out[i] = the best of a[i], b[i] and c[i].
template <class Better>
HWY_INLINE void BestOfThree(const float* a, const float* b, const float* c, int64_t n,
                            Better better, float* HWY_RESTRICT out) {
  for (int64_t i = 0; i < n; ++i) out[i] = better(better(a[i], b[i]), c[i]);
}

// For each number the best of it and of those `step` before and behind it; of `n`, a multiple of
// `step`. The first and last `step` have one neighbour.
template <class Better>
HWY_INLINE void BestAlong(const float* in, int64_t n, int64_t step, Better better, float* out) {
  if (n == step) {
    std::copy_n(in, n, out);
    return;
  }
  BestOfThree(in, in, in + step, step, better, out);
  BestOfThree(in, in + step, in + 2 * step, n - 2 * step, better, out + step);
  BestOfThree(in + n - 2 * step, in + n - step, in + n - step, step, better, out + n - step);
}

// Each pixel moved by `amount` towards the best in its square of 3 x 3.
template <class Better>
HWY_INLINE void Stroke(const ImageExtent& extent, float amount, const float* in, Better better,
                       float* HWY_RESTRICT lines, float* HWY_RESTRICT out) {
  const int64_t line = extent.width * extent.channels;
  const int64_t n = extent.features();
  BestAlong(in, n, line, better, lines);
  // Along the lines as if the image were one, and then the ends of each.
  BestAlong(lines, n, extent.channels, better, out);
  for (int64_t y = 0; y < n; y += line) {
    const int64_t c = extent.channels;
    const float* end = lines + y + line;
    if (extent.width == 1) {
      std::copy_n(lines + y, c, out + y);
    } else {
      BestOfThree(lines + y, lines + y, lines + y + c, c, better, out + y);
      BestOfThree(end - 2 * c, end - c, end - c, c, better, out + y + line - c);
    }
  }
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] + amount * (out[i] - in[i]);
}

void ApplyDrawn(const DrawnChange& change, const ImageBatch& batch, float* out, float* lines,
                float* stroked) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t features = change.extent.features();
  const auto contrast = hn::Set(d, change.contrast);
  const auto shift = hn::Set(d, change.shift);
  for (const int32_t example : batch.examples) {
    const float* in = batch.images + example * batch.stride;
    if (change.stroke > 0) {
      Stroke(change.extent, change.stroke, in, Larger(), lines, stroked);
    } else if (change.stroke < 0) {
      Stroke(change.extent, -change.stroke, in, Smaller(), lines, stroked);
    } else {
      std::copy_n(in, features, stroked);  // read in order: gathering from cold memory takes longer
    }
    for (int64_t f = 0; f < features; f += static_cast<int64_t>(hn::Lanes(d))) {
      auto sum = hn::Zero(d);
      for (int64_t k = 0; k < 4; ++k) {
        const auto at = hn::Load(di, change.inputs + k * batch.stride + f);
        sum = hn::MulAdd(hn::Load(d, change.weights + k * batch.stride + f),
                         hn::GatherIndex(d, stroked, at), sum);
      }
      const auto value = hn::MulAdd(contrast, sum, shift);
      hn::Store(hn::Min(hn::Max(value, hn::Zero(d)), hn::Set(d, 1.0F)), d, out + f);
    }
    std::fill(out + features, out + batch.stride, 0.0F);
    out += batch.stride;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(ApplyDrawn);

}  // namespace

void ApplyDrawnChange(const DrawnChange& change, const ImageBatch& batch, float* out,
                      Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  float* lines = scratch.Take<float>(batch.stride).data();
  float* stroked = scratch.Take<float>(batch.stride).data();
  LOPT_DISPATCH(ApplyDrawn)(change, batch, out, lines, stroked);
}

}  // namespace lopt
#endif  // HWY_ONCE
