// Per-target header of Highway kernels, as base/vector_math-inl.h: the hidden layers of a
// multilayer perceptron, forward and backward.
#if defined(LOPT_HIDDEN_LAYERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_HIDDEN_LAYERS_INL_H_
#undef LOPT_HIDDEN_LAYERS_INL_H_
#else
#define LOPT_HIDDEN_LAYERS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lopt/base/workspace.h"
#include "lopt/tasks/layers/activation-inl.h"
#include "lopt/tasks/layers/dense_layer-inl.h"
#include "lopt/tasks/layers/mlp_pass-inl.h"
#include "lopt/tasks/layers/norm-inl.h"
#include "lopt/tasks/layers/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// The layers of a pass; layer l has the units sizes[l], and layer 0 is the images.
struct HiddenLayers {
  int64_t last;      // the number of the last one
  int64_t count;     // examples
  int64_t rows;      // those of whole tiles
  int64_t capacity;  // those of whole panels
  RowPointers images;
  Derivative derivative;
  // Without hidden layers the images take the place of the last units; else units[0] is empty.
  std::span<PanelMatrix> units;
  // What derivatives are taken from and then the gradient.
  std::span<PanelMatrix> gradients;
  std::span<NormArrays> norms;
  const float* w;  // behind the params of the hidden layers
  float* buffer;   // of the widest layer rounded up to kLanes, times kWidth
};

HWY_MAYBE_UNUSED static HiddenLayers TakeHiddenLayers(const MlpPass& pass, Workspace& scratch) {
  const std::vector<int64_t>& sizes = pass.shape.sizes;
  const int64_t last = pass.shape.layers() - 1;
  const auto count = static_cast<int64_t>(pass.part.rows.size());
  const int64_t capacity = RoundUp(count, kWidth);
  const int64_t widest = *std::max_element(sizes.begin(), sizes.end());
  HiddenLayers layers{.last = last,
                      .count = count,
                      .rows = RoundUp(count, kRows),
                      .capacity = capacity,
                      .images = {pass.part.rows.data()},
                      .derivative = DerivativeOf(pass.activation),
                      .units = scratch.Take<PanelMatrix>(last + 1),
                      .gradients = scratch.Take<PanelMatrix>(last + 1),
                      .norms = scratch.Take<NormArrays>(last + 1),
                      .w = pass.params,
                      .buffer = scratch.Take<float>(RoundUp(widest, kLanes) * kWidth).data()};
  layers.units[0] = last == 0 ? TakePanels(capacity, sizes[0], scratch) : PanelMatrix{};
  for (int64_t l = 1; l <= last; ++l) {
    PanelMatrix& gradient = layers.gradients[l];
    layers.units[l] = gradient = TakePanels(capacity, sizes[l], scratch);
    if (layers.derivative == Derivative::kSlope) {
      gradient = pass.gradient == nullptr ? PanelMatrix{} : TakePanels(capacity, sizes[l], scratch);
    }
    if (pass.shape.norm == Norm::kNone) continue;
    layers.norms[l] = {TakePanels(capacity, sizes[l], scratch),
                       scratch.Take<float>(capacity + RoundUp(sizes[l], kLanes)).data()};
  }
  return layers;
}

// Computes the units of all layers.
HWY_MAYBE_UNUSED static HiddenLayers HiddenForward(const MlpPass& pass, Workspace& scratch) {
  HiddenLayers layers = TakeHiddenLayers(pass, scratch);
  const std::vector<int64_t>& sizes = pass.shape.sizes;
  const Norm norm = pass.shape.norm;
  const int64_t rows = layers.rows;
  const bool relu = pass.activation == Activation::kRelu && norm == Norm::kNone;
  float* statistics = pass.statistics;
  for (int64_t l = 0; l < layers.last; ++l) {
    const float* w = layers.w;
    const float* b = w + sizes[l] * sizes[l + 1];
    const PanelMatrix units = layers.units[l + 1];
    if (l == 0) {
      Forward(layers.images, rows, sizes[0], sizes[1], w, b, relu, units, layers.buffer);
    } else {
      Forward(Units{layers.units[l]}, rows, sizes[l], sizes[l + 1], w, b, relu, units,
              layers.buffer);
    }
    const float* scale = b + sizes[l + 1];
    if (norm == Norm::kLayer) LayerNorm(rows, sizes[l + 1], scale, units, layers.norms[l + 1]);
    if (norm == Norm::kBatch) {
      BatchNorm(rows, layers.count, sizes[l + 1], scale, statistics, pass.train, units,
                layers.norms[l + 1]);
      statistics += 2 * sizes[l + 1];
    }
    if (!relu) {
      const bool keeps_slopes = layers.derivative == Derivative::kSlope;
      Activate(pass.activation, rows, sizes[l + 1], units,
               keeps_slopes ? layers.gradients[l + 1] : PanelMatrix{});
    }
    layers.w += pass.shape.params(l);
  }
  const int64_t last = layers.last;
  if (last == 0) CopyRows(layers.images, rows, sizes[0], layers.units[0]);
  ClearRows(layers.units[last], sizes[last], rows);
  return layers;
}

// The gradient of all params of the hidden layers, from that of the last units before their
// activation in gradients[last].
HWY_MAYBE_UNUSED static void HiddenBackward(const MlpPass& pass, const HiddenLayers& layers) {
  const std::vector<int64_t>& sizes = pass.shape.sizes;
  const Norm norm = pass.shape.norm;
  const bool add = pass.part.add();
  const float* w = layers.w;
  for (int64_t l = layers.last - 1; l >= 0; --l) {
    const int64_t columns = sizes[l + 1];
    const PanelMatrix outputs = layers.gradients[l + 1];
    w -= pass.shape.params(l);
    float* gradient = pass.gradient + (w - pass.params);
    if (norm != Norm::kNone) {
      const int64_t scale = (sizes[l] + 1) * columns;
      const NormArrays& arrays = layers.norms[l + 1];
      NormParamGradient(layers.count, columns, arrays, outputs, add, gradient + scale);
      if (norm == Norm::kLayer) {
        LayerNormBackward(layers.rows, columns, w + scale, arrays, outputs);
      } else {
        BatchNormBackward(layers.rows, layers.count, columns, w + scale, pass.train, arrays,
                          outputs);
      }
    }
    if (l == 0) {
      WeightGradient(layers.images, sizes[0], columns, layers.count, outputs, add, gradient);
    } else {
      WeightGradient(Units{layers.units[l]}, sizes[l], columns, layers.count, outputs, add,
                     gradient);
    }
    BiasGradient(columns, layers.count, outputs, add, gradient + sizes[l] * columns);
    if (l == 0) break;
    Backward<false>(Units{outputs}, layers.rows, sizes[l], columns,
                    TransposedWeights{w, sizes[l], columns, layers.buffer}, layers.derivative,
                    layers.gradients[l]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_HIDDEN_LAYERS_INL_H_
