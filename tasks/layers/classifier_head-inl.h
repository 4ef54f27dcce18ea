// Per-target header of Highway kernels, as base/vector_math-inl.h: the linear layer at the end of a
// classifier, its losses and gradients, of any number of rows.
#if defined(LOPT_CLASSIFIER_HEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_CLASSIFIER_HEAD_INL_H_
#undef LOPT_CLASSIFIER_HEAD_INL_H_
#else
#define LOPT_CLASSIFIER_HEAD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <span>

#include "lopt/tasks/layers/batch_parts-inl.h"
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
HWY_MAYBE_UNUSED static LossSums ClassifierLosses(const ClassifierHead& head, float* slopes) {
  return SumOfParts(head.count, kMaxExamples, [&](int64_t first, int64_t count) {
    return LastLayer(head.inputs, head.classes, head.labels.subspan(first, count), head.scale,
                     PanelMatrix{head.units.data + first * kWidth, head.units.rows}, head.w,
                     head.w + head.inputs * head.classes, slopes + first, head.capacity,
                     head.buffer,
                     head.logits == nullptr ? nullptr : head.logits + first * head.classes);
  });
}

// The gradient of w and bias, at `gradient`, or added to it.
HWY_MAYBE_UNUSED static void ClassifierWeightGradient(const ClassifierHead& head,
                                                      const float* slopes, bool add,
                                                      float* gradient) {
  LastWeightGradient(slopes, head.capacity, head.units, head.inputs, head.classes, head.count, add,
                     gradient, gradient + head.inputs * head.classes);
}

// The gradient of the units, rows [0, RoundUp(count, kRows)), times a derivative. `of_units` holds
// what the derivative is taken from; the gradient replaces it.
HWY_MAYBE_UNUSED static void ClassifierBackward(const ClassifierHead& head, const float* slopes,
                                                Derivative derivative, PanelMatrix of_units) {
  Backward<true>(PlainRows{slopes, head.capacity}, RoundUp(head.count, kRows), head.inputs,
                 head.classes, TransposedWeights{head.w, head.inputs, head.classes, head.buffer},
                 derivative, of_units);
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_CLASSIFIER_HEAD_INL_H_
