#include "lopt/tasks/image/image_mlp_kernel.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/tasks/image/image_mlp_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/tasks/layers/classifier_head-inl.h"
#include "lopt/tasks/layers/hidden_layers-inl.h"
#include "lopt/tasks/layers/mlp_pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

LossSums RunPass(const MlpPass& pass, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const HiddenLayers layers = HiddenForward(pass, scratch);
  const int64_t last = layers.last;
  const ClassifierHead head{.units = layers.units[last],
                            .inputs = pass.shape.sizes[last],
                            .classes = pass.shape.sizes[last + 1],
                            .count = layers.count,
                            .capacity = layers.capacity,
                            .labels = pass.part.labels,
                            .scale = pass.part.scale,
                            .w = layers.w,
                            .buffer = layers.buffer,
                            .logits = pass.logits};
  float* slopes = scratch.Take<float>(head.classes * head.capacity).data();
  const LossSums sums = ClassifierLosses(head, slopes);
  if (pass.gradient == nullptr) return sums;

  ClassifierWeightGradient(head, slopes, pass.part.add(), pass.gradient + (layers.w - pass.params));
  if (last == 0) return sums;
  ClassifierBackward(head, slopes, layers.derivative, layers.gradients[last]);
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
