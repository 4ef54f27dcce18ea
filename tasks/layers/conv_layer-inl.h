// Per-target header of Highway kernels, as base/vector_math-inl.h: the pieces of a convolution that
// is computed as the products of dense_layer-inl.h, whose rows are windows of images.
#if defined(LOPT_CONV_LAYER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_CONV_LAYER_INL_H_
#undef LOPT_CONV_LAYER_INL_H_
#else
#define LOPT_CONV_LAYER_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "lopt/tasks/image/image_conv_problem.h"
#include "lopt/tasks/layers/activation-inl.h"
#include "lopt/tasks/layers/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// Images [height, width, channels], one after the other, whose pixels lie `step` apart from (top,
// left) on; all else is zero.
struct PaddedImages {
  float* data;
  int64_t height;
  int64_t width;
  int64_t channels;
  int64_t top;
  int64_t left;
  int64_t step;

  int64_t size() const { return height * width * channels; }  // of one
  float* At(int64_t image, int64_t y, int64_t x) const {
    return data + ((image * height + top + y * step) * width + left + x * step) * channels;
  }
};

// Windows of images as the rows of a left factor.
struct Windows {
  static constexpr bool kMayPace = false;  // g++ 12 runs out of registers
  static constexpr int64_t kStride = 0;
  const float* const* rows;  // the first number of each
  int64_t run;               // numbers of a line of a window
  int64_t line;              // numbers of a line of an image
  int64_t Segment() const { return run; }
  const float* At(int64_t row, int64_t k) const { return rows[row] + k / run * line + k % run; }
  void Prefetch(int64_t, int64_t, int64_t) const {}
};

// One line of every window.
struct WindowLines {
  const float* const* rows;
  int64_t offset;
  static int64_t Segment() { return int64_t{1} << 40; }
  const float* At(int64_t row, int64_t k) const { return rows[row] + offset + k; }
};

// Where the windows of `count` images begin that are `stride` apart, [count, height, width]; as
// many as a tile has rows are added behind.
HWY_MAYBE_UNUSED static void WindowStarts(const PaddedImages& images, int64_t count, int64_t height,
                                          int64_t width, int64_t stride, const float** starts) {
  const float** to = starts;
  for (int64_t image = 0; image < count; ++image) {
    for (int64_t y = 0; y < height; ++y) {
      const float* from =
          images.data + (image * images.height + y * stride) * images.width * images.channels;
      for (int64_t x = 0; x < width; ++x) *to++ = from + x * stride * images.channels;
    }
  }
  std::fill_n(to, kRows, starts[0]);
}

// A kernel w [taps, channels, filters] that gives the panels of the weights [taps, filters,
// channels] with which the gradient of the input is a convolution of that of the output.
struct FlippedKernel {
  const float* w;
  int64_t taps;
  int64_t channels;
  int64_t filters;
  float* buffer;  // [taps * filters, kWidth]
  const float* Panel(int64_t p) const {
    for (int64_t tap = 0; tap < taps; ++tap) {
      TransposedPanel(w + (taps - 1 - tap) * channels * filters, channels, filters, p,
                      buffer + tap * filters * kWidth);
    }
    return buffer;
  }
};

// Calls body(row of the first of the window, row of the pooled number, image, y, x) for the pooled
// positions of `count` images.
template <class Body>
HWY_INLINE void ForPooled(const ConvLayer& layer, int64_t count, const Body& body) {
  int64_t pooled = 0;
  for (int64_t image = 0; image < count; ++image) {
    for (int64_t y = 0; y < layer.pooled_height(); ++y) {
      const int64_t first =
          image * layer.positions() + y * layer.pool_height() * layer.columns.outputs();
      for (int64_t x = 0; x < layer.pooled_width(); ++x) {
        body(first + x * layer.pool_width(), pooled++, image, y, x);
      }
    }
  }
}

// The largest of two, NaN if one is.
HWY_INLINE V Larger(V a, V b) { return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::Ne(b, b)), b, a); }

// Stores the first n numbers of x, all if there are fewer.
HWY_INLINE void StoreFirst(V x, int64_t n, float* to) {
  if (n >= kLanes) {
    hn::StoreU(x, d, to);
  } else {
    hn::BlendedStore(x, hn::FirstN(d, static_cast<size_t>(n)), d, to);
  }
}

// The outputs of a layer behind the pooling.
HWY_MAYBE_UNUSED static HWY_NOINLINE void PoolForward(const ConvLayer& layer, int64_t count,
                                                      PanelMatrix values, const PaddedImages& to) {
  const int64_t height = layer.pool_height();
  const int64_t width = layer.pool_width();
  const V share = hn::Set(d, 1.0f / static_cast<float>(height * width));
  ForPanels(layer.filters, [&](int64_t p, auto kV) HWY_ATTR {
    ForPooled(
        layer, count, [&](int64_t row, int64_t, int64_t image, int64_t y, int64_t x) HWY_ATTR {
          Unrolled<kV>([&](auto v) HWY_ATTR {
            const float* from = values.Panel(p) + row * kWidth + v * kLanes;
            V pooled = hn::Load(d, from);
            for (int64_t i = 1; i < height * width; ++i) {
              const int64_t at = i / width * layer.columns.outputs() + i % width;
              const V value = hn::Load(d, from + at * kWidth);
              pooled = layer.pool == Pool::kMax ? Larger(pooled, value) : hn::Add(pooled, value);
            }
            if (layer.pool == Pool::kAverage) pooled = hn::Mul(pooled, share);
            const int64_t column = p * kWidth + v * kLanes;
            StoreFirst(pooled, layer.filters - column, to.At(image, y, x) + column);
          });
        });
  });
}

// Zeros in the outputs of an odd line or column at the end, which is in no window of the pooling.
HWY_MAYBE_UNUSED static void ClearLeftOut(const ConvLayer& layer, int64_t count,
                                          PanelMatrix outputs) {
  const int64_t height = layer.pooled_height() * layer.pool_height();
  const int64_t width = layer.pooled_width() * layer.pool_width();
  const int64_t line = layer.columns.outputs();
  if (height == layer.rows.outputs() && width == line) return;
  for (int64_t p = 0; p * kWidth < layer.filters; ++p) {
    for (int64_t y = 0; y < count * layer.rows.outputs(); ++y) {
      const int64_t first = y % layer.rows.outputs() < height ? width : 0;
      float* row = outputs.Panel(p) + y * line * kWidth;
      std::fill(row + first * kWidth, row + line * kWidth, 0.0f);
    }
  }
}

// Replaces in `gradient` what the derivative of the layer's activation is taken from by the
// gradient before the activation, from that behind the pooling. `values` are those of the
// activation and may be the same array.
HWY_MAYBE_UNUSED static HWY_NOINLINE void PoolBackward(const ConvLayer& layer, int64_t count,
                                                       Derivative derivative, PanelMatrix pooled,
                                                       PanelMatrix values, PanelMatrix gradient) {
  const int64_t height = layer.pool_height();
  const int64_t width = layer.pool_width();
  const V share =
      hn::Set(d, layer.pool == Pool::kAverage ? 1.0f / static_cast<float>(height * width) : 1.0f);
  const int64_t line = layer.columns.outputs();
  ForPanels(layer.filters, [&](int64_t p, auto kV) HWY_ATTR {
    ForPooled(
        layer, count, [&](int64_t row, int64_t pooled_row, int64_t, int64_t, int64_t) HWY_ATTR {
          Unrolled<kV>([&](auto v) HWY_ATTR {
            const int64_t offset = row * kWidth + v * kLanes;
            const V back =
                hn::Mul(share, hn::Load(d, pooled.Panel(p) + pooled_row * kWidth + v * kLanes));
            const float* from = values.Panel(p) + offset;
            V largest = hn::Load(d, from);
            for (int64_t i = 1; i < height * width; ++i) {
              largest =
                  Larger(largest, hn::Load(d, from + (i / width * line + i % width) * kWidth));
            }
            auto open = hn::Eq(largest, largest);  // where the largest has not been met
            for (int64_t i = 0; i < height * width; ++i) {
              const int64_t at = (i / width * line + i % width) * kWidth;
              const V value = hn::Load(d, from + at);
              float* to = gradient.Panel(p) + offset + at;
              V result = ActivationGradient(derivative, hn::Load(d, to), back);
              if (layer.pool == Pool::kMax) {
                const auto here = hn::And(open, hn::Eq(value, largest));
                open = hn::AndNot(here, open);
                result = hn::IfThenElseZero(here, result);
              }
              hn::Store(result, d, to);
            }
          });
        });
  });
  ClearLeftOut(layer, count, gradient);
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_CONV_LAYER_INL_H_
