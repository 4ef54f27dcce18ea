#include "tasks/image_mlp_kernel.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tasks/image_mlp_kernel.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tasks/activation-inl.h"
#include "tasks/dense_layer-inl.h"
#include "tasks/products-inl.h"
#include "tasks/softmax_layer-inl.h"
#include "tasks/softmax_layer.h"

#ifndef LOPT_IMAGE_MLP_KERNEL_ONCE
#define LOPT_IMAGE_MLP_KERNEL_ONCE
namespace lopt {

// One pass: examples [0, count) of `rows` and `labels`, whose loss and gradient count as one part
// in 1 / scale.
struct MlpPass {
  const MlpShape& shape;
  Activation activation;
  const float* params;
  std::span<const float* const> rows;
  std::span<const int32_t> labels;
  float scale;
  float* gradient;  // null: not wanted
  bool add;         // to the gradient that is there
};

}  // namespace lopt
#endif  // LOPT_IMAGE_MLP_KERNEL_ONCE

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// Without hidden layers the images take the place of the last units.
void CopyImages(const RowPointers& images, int64_t rows, int64_t features, PanelMatrix units) {
  for (int64_t p = 0; p * kWidth < features; ++p) {
    const int64_t valid = std::min(kWidth, features - p * kWidth);
    for (int64_t row = 0; row < rows; ++row) {
      float* to = units.Panel(p) + row * kWidth;
      std::fill(std::copy_n(images.At(row, p * kWidth), valid, to), to + kWidth, 0.0f);
    }
  }
}

// Zeros in rows [first, units.rows).
void ClearRows(PanelMatrix units, int64_t columns, int64_t first) {
  for (int64_t p = 0; p * kWidth < columns; ++p) {
    std::fill(units.Panel(p) + first * kWidth, units.Panel(p) + units.rows * kWidth, 0.0f);
  }
}

LossSums RunPass(const MlpPass& pass, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const std::vector<int64_t>& sizes = pass.shape.sizes;
  const Activation activation = pass.activation;
  const int64_t last = pass.shape.layers() - 1;  // the last layer of weights
  const int64_t classes = sizes[last + 1];
  const auto count = static_cast<int64_t>(pass.rows.size());
  const int64_t rows = RoundUp(count, kRows);
  const int64_t capacity = RoundUp(count, kWidth);
  const int64_t widest = *std::max_element(sizes.begin(), sizes.end());
  const RowPointers images{pass.rows.data()};
  float* buffer = scratch.Take<float>(RoundUp(widest, kLanes) * kWidth).data();
  float* logits = scratch.Take<float>(classes * capacity).data();
  const bool relu = activation == Activation::kRelu;
  const Derivative derivative = DerivativeOf(activation);
  const auto take = [&](int64_t columns) {
    const int64_t panels = (columns + kWidth - 1) / kWidth;
    return PanelMatrix{scratch.Take<float>(panels * capacity * kWidth).data(), capacity};
  };
  const std::span<PanelMatrix> units = scratch.Take<PanelMatrix>(last + 1);
  // What derivatives are taken from and then the gradient.
  const std::span<PanelMatrix> gradients = scratch.Take<PanelMatrix>(last + 1);
  if (last == 0) units[0] = take(sizes[0]);  // else images are read where they are
  for (int64_t l = 1; l <= last; ++l) {
    units[l] = gradients[l] = take(sizes[l]);
    if (derivative != Derivative::kSlope) continue;
    gradients[l] = pass.gradient == nullptr ? PanelMatrix{} : take(sizes[l]);
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
  if (last == 0) CopyImages(images, rows, sizes[0], units[0]);
  ClearRows(units[last], sizes[last], rows);
  const float* b = w + sizes[last] * classes;
  const LossSums sums = LastLayer(sizes[last], classes, pass.labels, pass.scale, units[last], w, b,
                                  logits, capacity, buffer);
  if (pass.gradient == nullptr) return sums;

  float* gradient = pass.gradient + (w - pass.params);
  LastWeightGradient(logits, capacity, units[last], sizes[last], classes, count, pass.add, gradient,
                     gradient + sizes[last] * classes);
  for (int64_t l = last - 1; l >= 0; --l) {
    if (l == last - 1) {
      Backward<true>(PlainRows{logits, capacity}, rows, sizes[last], classes, w, derivative,
                     gradients[last], buffer);
    } else {
      Backward<false>(Units{gradients[l + 2]}, rows, sizes[l + 1], sizes[l + 2], w, derivative,
                      gradients[l + 1], buffer);
    }
    w -= (sizes[l] + 1) * sizes[l + 1];
    gradient = pass.gradient + (w - pass.params);
    float* bias_gradient = gradient + sizes[l] * sizes[l + 1];
    if (l == 0) {
      WeightGradient(images, sizes[0], sizes[1], count, gradients[1], pass.add, gradient,
                     bias_gradient);
    } else {
      WeightGradient(Units{units[l]}, sizes[l], sizes[l + 1], count, gradients[l + 1], pass.add,
                     gradient, bias_gradient);
    }
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

// Rows that a pass may read beyond its last example: those of a panel or a tile.
constexpr int64_t kSpareRows = 32;

}  // namespace

MlpResult MlpLoss(const MlpShape& shape, const MlpEvaluation& e, Workspace& scratch) {
  const ImageBatch& batch = e.batch;
  const Workspace::Frame frame(scratch);
  const std::span<const float*> rows = scratch.Take<const float*>(kMaxExamples + kSpareRows);
  const std::span<int32_t> labels = scratch.Take<int32_t>(kMaxExamples + kSpareRows);
  const auto count = static_cast<int64_t>(batch.examples.size());
  LossSums sums;
  for (int64_t first = 0; first < count; first += kMaxExamples) {
    const int64_t part = std::min(kMaxExamples, count - first);
    const int32_t* examples = &batch.examples[first];
    for (int64_t i = 0; i < part; ++i) rows[i] = batch.images + examples[i] * batch.stride;
    for (int64_t i = 0; i < std::min<int64_t>(part, 16); ++i) hwy::Prefetch(rows[i]);
    for (int64_t i = 0; i < part; ++i) labels[i] = batch.labels[examples[i]];
    std::fill_n(&rows[part], kSpareRows, rows[0]);
    std::fill_n(&labels[part], kSpareRows, 0);
    const MlpPass pass{.shape = shape,
                       .activation = e.activation,
                       .params = e.params.data(),
                       .rows = rows.first(part),
                       .labels = labels.first(part),
                       .scale = 1 / static_cast<float>(count),
                       .gradient = e.gradient.empty() ? nullptr : e.gradient.data(),
                       .add = first > 0};
    const LossSums more = HWY_DYNAMIC_DISPATCH(RunPass)(pass, scratch);
    sums.loss += more.loss;
    sums.correct += more.correct;
  }
  return {static_cast<float>(sums.loss / static_cast<double>(count)), sums.correct};
}

}  // namespace lopt
#endif  // HWY_ONCE
