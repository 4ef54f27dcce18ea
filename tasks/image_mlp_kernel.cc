#include "tasks/image_mlp_kernel.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tasks/image_mlp_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tasks/activation-inl.h"
#include "tasks/batch_parts.h"
#include "tasks/dense_layer-inl.h"
#include "tasks/products-inl.h"
#include "tasks/softmax_layer-inl.h"
#include "tasks/softmax_layer.h"

#ifndef LOPT_IMAGE_MLP_KERNEL_ONCE
#define LOPT_IMAGE_MLP_KERNEL_ONCE
namespace lopt {

struct MlpPass {
  const MlpShape& shape;
  Activation activation;
  const float* params;
  BatchPart part;
  float* gradient;  // null: not wanted
};

}  // namespace lopt
#endif  // LOPT_IMAGE_MLP_KERNEL_ONCE

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

LossSums RunPass(const MlpPass& pass, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const std::vector<int64_t>& sizes = pass.shape.sizes;
  const Activation activation = pass.activation;
  const int64_t last = pass.shape.layers() - 1;  // the last layer of weights
  const int64_t classes = sizes[last + 1];
  const auto count = static_cast<int64_t>(pass.part.rows.size());
  const int64_t rows = RoundUp(count, kRows);
  const int64_t capacity = RoundUp(count, kWidth);
  const int64_t widest = *std::max_element(sizes.begin(), sizes.end());
  const RowPointers images{pass.part.rows.data()};
  float* buffer = scratch.Take<float>(RoundUp(widest, kLanes) * kWidth).data();
  float* logits = scratch.Take<float>(classes * capacity).data();
  const bool relu = activation == Activation::kRelu;
  const Derivative derivative = DerivativeOf(activation);
  const std::span<PanelMatrix> units = scratch.Take<PanelMatrix>(last + 1);
  // What derivatives are taken from and then the gradient.
  const std::span<PanelMatrix> gradients = scratch.Take<PanelMatrix>(last + 1);
  if (last == 0)
    units[0] = TakePanels(capacity, sizes[0], scratch);  // else images are read where they are
  for (int64_t l = 1; l <= last; ++l) {
    units[l] = gradients[l] = TakePanels(capacity, sizes[l], scratch);
    if (derivative != Derivative::kSlope) continue;
    gradients[l] =
        pass.gradient == nullptr ? PanelMatrix{} : TakePanels(capacity, sizes[l], scratch);
  }

  const float* w = pass.params;
  for (int64_t l = 0; l < last; ++l) {
    const float* b = w + sizes[l] * sizes[l + 1];
    if (l == 0) {
      Forward(images, rows, sizes[0], sizes[1], w, b, relu, units[1], buffer);
    } else {
      Forward(Units{units[l]}, rows, sizes[l], sizes[l + 1], w, b, relu, units[l + 1], buffer);
    }
    if (!relu) {
      Activate(activation, rows, sizes[l + 1], units[l + 1],
               derivative == Derivative::kSlope ? gradients[l + 1] : PanelMatrix{});
    }
    w = b + sizes[l + 1];
  }
  if (last == 0) CopyRows(images, rows, sizes[0], units[0]);
  ClearRows(units[last], sizes[last], rows);
  const float* b = w + sizes[last] * classes;
  const LossSums sums = LastLayer(sizes[last], classes, pass.part.labels, pass.part.scale,
                                  units[last], w, b, logits, capacity, buffer);
  if (pass.gradient == nullptr) return sums;

  float* gradient = pass.gradient + (w - pass.params);
  LastWeightGradient(logits, capacity, units[last], sizes[last], classes, count, pass.part.add,
                     gradient, gradient + sizes[last] * classes);
  for (int64_t l = last - 1; l >= 0; --l) {
    if (l == last - 1) {
      Backward<true>(PlainRows{logits, capacity}, rows, sizes[last], classes,
                     TransposedWeights{w, sizes[last], classes, buffer}, derivative,
                     gradients[last]);
    } else {
      Backward<false>(Units{gradients[l + 2]}, rows, sizes[l + 1], sizes[l + 2],
                      TransposedWeights{w, sizes[l + 1], sizes[l + 2], buffer}, derivative,
                      gradients[l + 1]);
    }
    w -= (sizes[l] + 1) * sizes[l + 1];
    gradient = pass.gradient + (w - pass.params);
    const PanelMatrix outputs = gradients[l + 1];
    if (l == 0) {
      WeightGradient(images, sizes[0], sizes[1], count, outputs, pass.part.add, gradient);
    } else {
      WeightGradient(Units{units[l]}, sizes[l], sizes[l + 1], count, outputs, pass.part.add,
                     gradient);
    }
    BiasGradient(sizes[l + 1], count, outputs, pass.part.add, gradient + sizes[l] * sizes[l + 1]);
  }
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
  return SumOverParts(e.batch, kMaxExamples, scratch, [&](const BatchPart& part) {
    const MlpPass pass{.shape = shape,
                       .activation = e.activation,
                       .params = e.params.data(),
                       .part = part,
                       .gradient = e.gradient.empty() ? nullptr : e.gradient.data()};
    return HWY_DYNAMIC_DISPATCH(RunPass)(pass, scratch);
  });
}

}  // namespace lopt
#endif  // HWY_ONCE
