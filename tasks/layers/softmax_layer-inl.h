// Per-target header of Highway kernels, as base/vector_math-inl.h: a last layer with softmax and
// cross-entropy, and the gradient of its weights.
#if defined(LOPT_SOFTMAX_LAYER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_SOFTMAX_LAYER_INL_H_
#undef LOPT_SOFTMAX_LAYER_INL_H_
#else
#define LOPT_SOFTMAX_LAYER_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "lopt/base/vector_math-inl.h"
#include "lopt/tasks/layers/products-inl.h"
#include "lopt/tasks/layers/softmax_layer.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

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

// The last layer, with examples in lanes: from `hidden` units of at most kMaxExamples examples the
// logits, the losses and `gradient` [classes, stride], that of `scale` times their sum with respect
// to the logits. `labels` may be read up to a multiple of kWidth; `buffer` is [hidden, kWidth];
// `logits` [examples, classes] may be null, and then they are not kept.
HWY_MAYBE_UNUSED static HWY_NOINLINE LossSums LastLayer(int64_t hidden, int64_t classes,
                                                        std::span<const int32_t> labels,
                                                        float scale, PanelMatrix units,
                                                        const float* w, const float* b,
                                                        float* gradient, int64_t stride,
                                                        float* buffer, float* logits) {
  const auto count = static_cast<int64_t>(labels.size());
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
  for (int64_t i = 0; logits != nullptr && i < count; ++i) {
    for (int64_t c = 0; c < classes; ++c) logits[i * classes + c] = gradient[c * stride + i];
  }
  HWY_ALIGN float sum[kMaxExamples];
  HWY_ALIGN float chosen[kMaxExamples];
  HWY_ALIGN int32_t answer[kMaxExamples];
  for (int64_t first = 0; first < count; first += kWidth) {
    Softmax(classes, labels.data() + first, scale, gradient + first, stride, sum + first,
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
  LossSums sums{.loss = (loss[0] + loss[1]) + (loss[2] + loss[3])};
  for (int64_t i = 0; i < count; ++i) {
    sums.correct += static_cast<int64_t>(answer[i] == labels[i]) & (chosen[i] == chosen[i]);
  }
  return sums;
}

// The gradient of the last layer's weights w [hidden, classes] and bias.
HWY_MAYBE_UNUSED static HWY_NOINLINE void LastWeightGradient(const float* gradient, int64_t stride,
                                                             PanelMatrix units, int64_t hidden,
                                                             int64_t classes, int64_t count,
                                                             bool add, float* w, float* b) {
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

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_SOFTMAX_LAYER_INL_H_
