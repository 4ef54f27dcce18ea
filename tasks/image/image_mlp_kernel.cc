#include "lopt/tasks/image/image_mlp_kernel.h"

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/tasks/image/image_mlp_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/tasks/layers/dense_layer-inl.h"
#include "lopt/tasks/layers/hidden_layers-inl.h"
#include "lopt/tasks/layers/mlp_pass-inl.h"
#include "lopt/tasks/layers/softmax_layer-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// The last layer and its losses, of kMaxExamples at a time.
LossSums Classify(const MlpPass& pass, const HiddenLayers& layers, float* logits) {
  const int64_t hidden = pass.shape.sizes[layers.last];
  const int64_t classes = pass.shape.sizes[layers.last + 1];
  LossSums sums;
  for (int64_t first = 0; first < layers.count; first += kMaxExamples) {
    const int64_t count = std::min(kMaxExamples, layers.count - first);
    const PanelMatrix units = layers.units[layers.last];
    const LossSums more =
        LastLayer(hidden, classes, pass.part.labels.subspan(first, count), pass.part.scale,
                  PanelMatrix{units.data + first * kWidth, units.rows}, layers.w,
                  layers.w + hidden * classes, logits + first, layers.capacity, layers.buffer,
                  pass.logits == nullptr ? nullptr : pass.logits + first * classes);
    sums.loss += more.loss;
    sums.correct += more.correct;
  }
  return sums;
}

LossSums RunPass(const MlpPass& pass, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const HiddenLayers layers = HiddenForward(pass, scratch);
  const int64_t last = layers.last;
  const int64_t hidden = pass.shape.sizes[last];
  const int64_t classes = pass.shape.sizes[last + 1];
  float* logits = scratch.Take<float>(classes * layers.capacity).data();
  const LossSums sums = Classify(pass, layers, logits);
  if (pass.gradient == nullptr) return sums;

  float* gradient = pass.gradient + (layers.w - pass.params);
  LastWeightGradient(logits, layers.capacity, layers.units[last], hidden, classes, layers.count,
                     pass.part.add(), gradient, gradient + hidden * classes);
  if (last == 0) return sums;
  Backward<true>(PlainRows{logits, layers.capacity}, layers.rows, hidden, classes,
                 TransposedWeights{layers.w, hidden, classes, layers.buffer}, layers.derivative,
                 layers.gradients[last]);
  HiddenBackward(pass, layers);
  return sums;
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(RunPass);

}  // namespace

ClassifierResult MlpLoss(const MlpShape& shape, const MlpEvaluation& e, Workspace& scratch) {
  return SumOverParts(e.batch, MostExamplesOfPass(shape, e), scratch, [&](const BatchPart& part) {
    return LOPT_DISPATCH(RunPass)(MakeMlpPass(shape, e, part), scratch);
  });
}

}  // namespace lopt
#endif  // HWY_ONCE
