#include "lopt/tasks/image/image_autoencoder_kernel.h"

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/tasks/image/image_autoencoder_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/base/vector_math-inl.h"
#include "lopt/tasks/layers/dense_layer-inl.h"
#include "lopt/tasks/layers/hidden_layers-inl.h"
#include "lopt/tasks/layers/mlp_pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// sigmoid(output), in rows of whole tiles.
PanelMatrix Decode(const MlpPass& pass, const HiddenLayers& layers, Workspace& scratch) {
  const int64_t hidden = pass.shape.sizes[layers.last];
  const int64_t pixels = pass.shape.sizes[layers.last + 1];
  const PanelMatrix images = TakePanels(layers.capacity, pixels, scratch);
  Forward(Units{layers.units[layers.last]}, layers.rows, hidden, pixels, layers.w,
          layers.w + hidden * pixels, /*relu=*/false, images, layers.buffer);
  Activate(Activation::kSigmoid, layers.rows, pixels, images, PanelMatrix{});
  return images;
}

// The sum over examples of the mean squared error; the images become the gradient of their outputs.
double SquaredError(const MlpPass& pass, const HiddenLayers& layers, PanelMatrix images) {
  const int64_t pixels = pass.shape.sizes[0];
  const V scale = hn::Set(d, 2 * pass.part.scale / static_cast<float>(pixels));
  double loss = 0;
  for (int64_t row = 0; row < layers.count; ++row) {
    V sum = hn::Zero(d);
    ForVectors(pixels, [&](int64_t p, int64_t offset, int64_t column, auto valid) HWY_ATTR {
      float* at = images.Panel(p) + row * kWidth + offset;
      const V y = hn::Load(d, at);
      const V wanted = LoadPart(layers.images.rows[row], column, pixels);
      const V error = hn::IfThenElseZero(valid, hn::Sub(y, wanted));
      sum = hn::MulAdd(error, error, sum);
      const V slope = hn::NegMulAdd(y, y, y);
      hn::Store(hn::Mul(hn::Mul(scale, error), slope), d, at);
    });
    loss += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return loss / static_cast<double>(pixels);
}

LossSums RunAutoencoderPass(const MlpPass& pass, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const HiddenLayers layers = HiddenForward(pass, scratch);
  const int64_t last = layers.last;
  const int64_t hidden = pass.shape.sizes[last];
  const int64_t pixels = pass.shape.sizes[last + 1];
  const PanelMatrix images = Decode(pass, layers, scratch);
  const LossSums sums{.loss = SquaredError(pass, layers, images)};
  if (pass.gradient == nullptr) return sums;

  float* gradient = pass.gradient + (layers.w - pass.params);
  WeightGradient(Units{layers.units[last]}, hidden, pixels, layers.count, images, pass.part.add(),
                 gradient);
  BiasGradient(pixels, layers.count, images, pass.part.add(), gradient + hidden * pixels);
  if (last == 0) return sums;
  Backward<false>(Units{images}, layers.rows, hidden, pixels,
                  TransposedWeights{layers.w, hidden, pixels, layers.buffer}, layers.derivative,
                  layers.gradients[last]);
  HiddenBackward(pass, layers);
  return sums;
}

// Writes the images of a pass to `out`.
void RunReconstruct(const MlpPass& pass, float* out, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const HiddenLayers layers = HiddenForward(pass, scratch);
  const int64_t pixels = pass.shape.sizes[0];
  const PanelMatrix images = Decode(pass, layers, scratch);
  for (int64_t p = 0; p * kWidth < pixels; ++p) {
    const int64_t valid = std::min(kWidth, pixels - p * kWidth);
    for (int64_t row = 0; row < layers.count; ++row) {
      std::copy_n(images.Panel(p) + row * kWidth, valid, out + row * pixels + p * kWidth);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(RunAutoencoderPass);
HWY_EXPORT(RunReconstruct);

}  // namespace

float AutoencoderLoss(const MlpShape& shape, const MlpEvaluation& e, Workspace& scratch) {
  const auto run = [&](const BatchPart& part) {
    return LOPT_DISPATCH(RunAutoencoderPass)(MakeMlpPass(shape, e, part), scratch);
  };
  return SumOverParts(e.batch, kMaxExamples, scratch, run).loss;
}

void Reconstruct(const MlpShape& shape, const MlpEvaluation& e, std::span<float> images,
                 Workspace& scratch) {
  float* out = images.data();
  SumOverParts(e.batch, kMaxExamples, scratch, [&](const BatchPart& part) {
    LOPT_DISPATCH(RunReconstruct)(MakeMlpPass(shape, e, part), out, scratch);
    out += std::ssize(part.rows) * shape.sizes[0];
    return LossSums{};
  });
}

}  // namespace lopt
#endif  // HWY_ONCE
