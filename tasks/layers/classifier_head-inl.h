// Per-target header of Highway kernels, as base/vector_math-inl.h: the linear layer at the end of a
// classifier, its losses and gradients, of any number of rows.
#if defined(LOPT_CLASSIFIER_HEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_CLASSIFIER_HEAD_INL_H_
#undef LOPT_CLASSIFIER_HEAD_INL_H_
#else
#define LOPT_CLASSIFIER_HEAD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "lopt/tasks/layers/dense_layer-inl.h"
#include "lopt/tasks/layers/products-inl.h"
#include "lopt/tasks/layers/softmax_layer-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

struct ClassifierHead {
  PanelMatrix units;  // [count, inputs]; finite numbers up to whole panels of rows
  int64_t inputs;
  int64_t classes;
  int64_t count;
  int64_t capacity;                 // rows of whole panels
  std::span<const int32_t> labels;  // may be read up to a multiple of kWidth
  float scale;                      // of the losses in the gradient
  const float* w;                   // [inputs, classes], and behind it the bias [classes]
  float* buffer;                    // [inputs rounded up to kLanes or classes, kWidth]
  float* logits;                    // [count, classes], out; null: not wanted
};

// The sums of the losses. `slopes` [classes, capacity] becomes the gradient of the logits.
HWY_MAYBE_UNUSED static LossSums HeadLosses(const ClassifierHead& head, float* slopes) {
  LossSums sums;
  for (int64_t first = 0; first < head.count; first += kMaxExamples) {
    const int64_t count = std::min(kMaxExamples, head.count - first);
    const LossSums more =
        LastLayer(head.inputs, head.classes, head.labels.subspan(first, count), head.scale,
                  PanelMatrix{head.units.data + first * kWidth, head.units.rows}, head.w,
                  head.w + head.inputs * head.classes, slopes + first, head.capacity, head.buffer,
                  head.logits == nullptr ? nullptr : head.logits + first * head.classes);
    sums.loss += more.loss;
    sums.correct += more.correct;
  }
  return sums;
}

// The gradient of w and bias, at `gradient`, or added to it.
HWY_MAYBE_UNUSED static void HeadWeightGradient(const ClassifierHead& head, const float* slopes,
                                                bool add, float* gradient) {
  LastWeightGradient(slopes, head.capacity, head.units, head.inputs, head.classes, head.count, add,
                     gradient, gradient + head.inputs * head.classes);
}

// The gradient of the units, rows [0, RoundUp(count, kRows)), through a derivative, which it
// replaces.
HWY_MAYBE_UNUSED static void HeadBackward(const ClassifierHead& head, const float* slopes,
                                          Derivative derivative, PanelMatrix of_units) {
  Backward<true>(PlainRows{slopes, head.capacity}, RoundUp(head.count, kRows), head.inputs,
                 head.classes, TransposedWeights{head.w, head.inputs, head.classes, head.buffer},
                 derivative, of_units);
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_CLASSIFIER_HEAD_INL_H_
