#include "lopt/tasks/image/image_conv_kernel.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/tasks/image/image_conv_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/tasks/layers/activation-inl.h"
#include "lopt/tasks/layers/batch_parts-inl.h"
#include "lopt/tasks/layers/classifier_head-inl.h"
#include "lopt/tasks/layers/conv_layer-inl.h"
#include "lopt/tasks/layers/dense_layer-inl.h"
#include "lopt/tasks/layers/products-inl.h"

#ifndef LOPT_IMAGE_CONV_KERNEL_ONCE
#define LOPT_IMAGE_CONV_KERNEL_ONCE
namespace lopt {

struct ConvPass {
  const ConvShape& shape;
  Activation activation;
  const float* params;
  BatchPart part;
  float* gradient;  // null: not wanted
  float* logits;    // of the part, [examples, classes]; null: not wanted
};

}  // namespace lopt
#endif  // LOPT_IMAGE_CONV_KERNEL_ONCE

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// Rows of a product whose weight gradient is summed before the next ones: they stay in the
// first-level cache.
constexpr int64_t kBlockRows = 128;

// What a pass keeps of a convolution; rows are the positions of all examples.
struct ConvArrays {
  PaddedImages inputs;
  PanelMatrix values;    // of the activation
  PanelMatrix gradient;  // what its derivative is taken from, then the gradient before it
};

PaddedImages TakeImages(int64_t count, int64_t height, int64_t width, int64_t channels, int64_t top,
                        int64_t left, int64_t step, Workspace& scratch) {
  PaddedImages images{nullptr, height, width, channels, top, left, step};
  // A tile may read a few numbers beyond the last window.
  const std::span<float> data = scratch.Take<float>(count * images.size() + kWidth);
  std::ranges::fill(data, 0.0f);
  images.data = data.data();
  return images;
}

// The images that the windows of a layer lie in.
PaddedImages TakeInputs(const ConvLayer& layer, int64_t count, Workspace& scratch) {
  return TakeImages(count, layer.rows.padded(), layer.columns.padded(), layer.channels,
                    layer.rows.low(), layer.columns.low(), 1, scratch);
}

// The gradient of a layer's outputs, spread so that its windows, one for every input, give that of
// the inputs.
PaddedImages TakeSpread(const ConvLayer& layer, int64_t count, Workspace& scratch) {
  const SameWindow& rows = layer.rows;
  const SameWindow& columns = layer.columns;
  return TakeImages(count, rows.size + rows.kernel - 1, columns.size + columns.kernel - 1,
                    layer.filters, rows.kernel - 1 - rows.low(), columns.kernel - 1 - columns.low(),
                    rows.stride, scratch);
}

void CopyExamples(const RowPointers& examples, int64_t count, const ConvLayer& layer,
                  const PaddedImages& to) {
  const int64_t line = layer.columns.size * layer.channels;
  for (int64_t image = 0; image < count; ++image) {
    for (int64_t y = 0; y < layer.rows.size; ++y) {
      std::copy_n(examples.At(image, y * line), line, to.At(image, y, 0));
    }
  }
}

// The features of the head from the outputs of the last layer, and back.
void HeadForward(const ConvShape& shape, int64_t count, const PaddedImages& outputs,
                 const float** rows, PanelMatrix features) {
  const int64_t size = outputs.size();
  if (shape.head == ConvHead::kFlatten) {
    for (int64_t image = 0; image < count; ++image) rows[image] = outputs.data + image * size;
    return CopyRows(RowPointers{rows}, count, size, features);
  }
  const int64_t filters = shape.features();
  const V share = hn::Set(d, static_cast<float>(filters) / static_cast<float>(size));
  ForPanels(filters, [&](int64_t p, auto kV) HWY_ATTR {
    for (int64_t image = 0; image < count; ++image) {
      Unrolled<kV>([&](auto v) HWY_ATTR {
        const float* from = outputs.data + image * size + p * kWidth + v * kLanes;
        V sum = hn::Zero(d);
        for (int64_t at = 0; at < size; at += filters) sum = hn::Add(sum, hn::LoadU(d, from + at));
        hn::Store(hn::Mul(sum, share), d, features.Panel(p) + image * kWidth + v * kLanes);
      });
    }
  });
}

// `line` has room for the features of an example and a panel more.
void HeadBackward(const ConvShape& shape, int64_t count, PanelMatrix features, float* line,
                  PanelMatrix outputs) {
  const ConvLayer& last = shape.layers.back();
  const int64_t positions = last.pooled_positions();
  const bool mean = shape.head == ConvHead::kMean;
  const V share = hn::Set(d, mean ? 1 / static_cast<float>(positions) : 1.0f);
  for (int64_t image = 0; image < count; ++image) {
    for (int64_t p = 0; p * kWidth < shape.features(); ++p) {
      std::copy_n(features.Panel(p) + image * kWidth, kWidth, line + p * kWidth);
    }
    ForPanels(last.filters, [&](int64_t p, auto kV) HWY_ATTR {
      for (int64_t position = 0; position < positions; ++position) {
        const float* from = line + (mean ? 0 : position * last.filters) + p * kWidth;
        float* to = outputs.Panel(p) + (image * positions + position) * kWidth;
        Unrolled<kV>([&](auto v) HWY_ATTR {
          hn::Store(hn::Mul(share, hn::LoadU(d, from + v * kLanes)), d, to + v * kLanes);
        });
      }
    });
  }
}

void KernelGradient(const ConvLayer& layer, int64_t rows, const float* const* starts,
                    const PaddedImages& inputs, PanelMatrix outputs, bool add, float* w) {
  const int64_t run = layer.columns.kernel * layer.channels;
  for (int64_t first = 0; first < rows; first += kBlockRows) {
    const int64_t count = std::min(kBlockRows, rows - first);
    const PanelMatrix block{outputs.data + first * kWidth, outputs.rows};
    for (int64_t y = 0; y < layer.rows.kernel; ++y) {
      WeightGradient(WindowLines{starts + first, y * inputs.width * layer.channels}, run,
                     layer.filters, count, block, add || first > 0, w + y * run * layer.filters);
    }
  }
  BiasGradient(layer.filters, rows, outputs, add, w + layer.weights());
}

LossSums RunConvPass(const ConvPass& pass, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const std::vector<ConvLayer>& layers = pass.shape.layers;
  const auto depth = std::ssize(layers);
  const auto count = static_cast<int64_t>(pass.part.rows.size());
  const int64_t features = pass.shape.features();
  const int64_t classes = pass.shape.classes;
  const bool relu = pass.activation == Activation::kRelu;
  const Derivative derivative = DerivativeOf(pass.activation);
  const bool wants_gradient = pass.gradient != nullptr;
  const ConvLayer& last = layers.back();
  int64_t most_positions = 0;
  int64_t deepest = std::max(features, classes);  // factors of a product
  for (const ConvLayer& layer : layers) {
    most_positions =
        std::max({most_positions, layer.positions(), layer.rows.size * layer.columns.size});
    deepest = std::max({deepest, layer.window(), layer.weights() / layer.channels});
  }
  const float** starts = scratch.Take<const float*>(count * most_positions + kRows).data();
  float* buffer = scratch.Take<float>(RoundUp(deepest, kLanes) * kWidth).data();
  const std::span<ConvArrays> arrays = scratch.Take<ConvArrays>(depth);

  const float* w = pass.params;
  for (int64_t l = 0; l < depth; ++l) {
    const ConvLayer& layer = layers[l];
    ConvArrays& at = arrays[l];
    at.inputs = TakeInputs(layer, count, scratch);
    if (l == 0) {
      CopyExamples(RowPointers{pass.part.rows.data()}, count, layer, at.inputs);
    } else {
      PoolForward(layers[l - 1], count, arrays[l - 1].values, at.inputs);
    }
    const int64_t rows = count * layer.positions();
    const int64_t capacity = RoundUp(rows, kRows);
    at.values = at.gradient = TakePanels(capacity, layer.filters, scratch);
    WindowStarts(at.inputs, count, layer.rows.outputs(), layer.columns.outputs(), layer.rows.stride,
                 starts);
    Forward(
        Windows{starts, layer.columns.kernel * layer.channels, at.inputs.width * layer.channels},
        rows, layer.window(), layer.filters, w, w + layer.weights(), relu, at.values, buffer);
    if (!relu) {
      const bool keep = wants_gradient && derivative == Derivative::kSlope;
      if (keep) at.gradient = TakePanels(capacity, layer.filters, scratch);
      Activate(pass.activation, rows, layer.filters, at.values, keep ? at.gradient : PanelMatrix{});
    }
    w += layer.weights() + layer.filters;
  }

  const int64_t examples = RoundUp(count, kWidth);
  const PaddedImages outputs =
      TakeImages(count, last.pooled_height(), last.pooled_width(), last.filters, 0, 0, 1, scratch);
  PoolForward(last, count, arrays[depth - 1].values, outputs);
  const PanelMatrix units = TakePanels(examples, features, scratch);
  ClearRows(units, features, count);
  HeadForward(pass.shape, count, outputs, starts, units);
  const ClassifierHead head{.units = units,
                            .inputs = features,
                            .classes = classes,
                            .count = count,
                            .capacity = examples,
                            .labels = pass.part.labels,
                            .scale = pass.part.scale,
                            .w = w,
                            .buffer = buffer,
                            .logits = pass.logits};
  float* slopes = scratch.Take<float>(classes * examples).data();
  const LossSums sums = ClassifierLosses(head, slopes);
  if (!wants_gradient) return sums;

  ClassifierWeightGradient(head, slopes, pass.part.add(), pass.gradient + (w - pass.params));
  ClassifierBackward(head, slopes, Derivative::kOne, units);
  PanelMatrix pooled =
      TakePanels(RoundUp(count * last.pooled_positions(), kRows), last.filters, scratch);
  HeadBackward(pass.shape, count, units, buffer, pooled);
  PoolBackward(last, count, derivative, pooled, arrays[depth - 1].values,
               arrays[depth - 1].gradient);
  for (int64_t l = depth - 1; l >= 0; --l) {
    const ConvLayer& layer = layers[l];
    const ConvArrays& at = arrays[l];
    w -= layer.weights() + layer.filters;
    WindowStarts(at.inputs, count, layer.rows.outputs(), layer.columns.outputs(), layer.rows.stride,
                 starts);
    KernelGradient(layer, count * layer.positions(), starts, at.inputs, at.gradient,
                   pass.part.add(), pass.gradient + (w - pass.params));
    if (l == 0) break;

    const ConvLayer& before = layers[l - 1];
    const PaddedImages spread = TakeSpread(layer, count, scratch);
    ConvLayer unpooled = layer;
    unpooled.pool = Pool::kNone;
    PoolForward(unpooled, count, at.gradient, spread);
    WindowStarts(spread, count, layer.rows.size, layer.columns.size, 1, starts);
    const Windows windows{starts, layer.columns.kernel * layer.filters,
                          spread.width * layer.filters};
    const int64_t taps = layer.rows.kernel * layer.columns.kernel;
    const FlippedKernel kernel{w, taps, layer.channels, layer.filters, buffer};
    const int64_t rows = count * layer.rows.size * layer.columns.size;
    if (before.pool == Pool::kNone) {
      Backward<false>(windows, rows, layer.channels, taps * layer.filters, kernel, derivative,
                      arrays[l - 1].gradient);
    } else {
      pooled = TakePanels(RoundUp(rows, kRows), layer.channels, scratch);
      Backward<false>(windows, rows, layer.channels, taps * layer.filters, kernel, Derivative::kOne,
                      pooled);
      PoolBackward(before, count, derivative, pooled, arrays[l - 1].values, arrays[l - 1].gradient);
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

HWY_EXPORT(RunConvPass);

// As many examples as keep what a pass holds of them within some megabytes.
int64_t ExamplesPerPass(const ConvShape& shape) {
  constexpr int64_t kNumbers = int64_t{1} << 19;
  int64_t numbers = 0;
  for (const ConvLayer& layer : shape.layers) {
    numbers += layer.rows.padded() * layer.columns.padded() * layer.channels +
               2 * layer.positions() * layer.filters;
  }
  return std::clamp<int64_t>(kNumbers / numbers, 8, kMaxExamples);
}

}  // namespace

ClassifierResult ConvLoss(const ConvShape& shape, const ConvEvaluation& e, Workspace& scratch) {
  return SumOverParts(e.batch, ExamplesPerPass(shape), scratch, [&](const BatchPart& part) {
    const ConvPass pass{.shape = shape,
                        .activation = e.activation,
                        .params = e.params.data(),
                        .part = part,
                        .gradient = e.gradient.empty() ? nullptr : e.gradient.data(),
                        .logits = LogitsOfPart(e.logits, shape.classes, part)};
    return LOPT_DISPATCH(RunConvPass)(pass, scratch);
  });
}

}  // namespace lopt
#endif  // HWY_ONCE
