#include "lopt/tasks/image/squared_error_kernel.h"

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/tasks/image/squared_error_kernel.cc"
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

// What the network says, in rows of whole tiles.
PanelMatrix Outputs(const MlpPass& pass, const HiddenLayers& layers, Workspace& scratch) {
  const int64_t hidden = pass.shape.sizes[layers.last];
  const int64_t outputs = pass.shape.sizes[layers.last + 1];
  const PanelMatrix out = TakePanels(layers.capacity, outputs, scratch);
  Forward(Units{layers.units[layers.last]}, layers.rows, hidden, outputs, layers.w,
          layers.w + hidden * outputs, /*relu=*/false, out, layers.buffer);
  if (pass.targets.sigmoid) {
    Activate(Activation::kSigmoid, layers.rows, outputs, out, PanelMatrix{});
  }
  return out;
}

// The sum over examples of the mean squared error; `out` becomes the gradient of the linear
// outputs.
double SquaredError(const MlpPass& pass, const HiddenLayers& layers, PanelMatrix out) {
  const int64_t outputs = pass.shape.sizes[layers.last + 1];
  const V scale = hn::Set(d, 2 * pass.part.scale / static_cast<float>(outputs));
  double loss = 0;
  for (int64_t row = 0; row < layers.count; ++row) {
    const float* targets = layers.images.rows[row] + pass.targets.at;
    V sum = hn::Zero(d);
    ForVectors(outputs, [&](int64_t p, int64_t offset, int64_t column, auto valid) HWY_ATTR {
      float* at = out.Panel(p) + row * kWidth + offset;
      const V y = hn::Load(d, at);
      const V wanted = LoadPart(targets, column, outputs);
      const V error = hn::IfThenElseZero(valid, hn::Sub(y, wanted));
      sum = hn::MulAdd(error, error, sum);
      V slope = hn::Mul(scale, error);
      if (pass.targets.sigmoid) slope = hn::Mul(slope, hn::NegMulAdd(y, y, y));
      hn::Store(slope, d, at);
    });
    loss += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return loss / static_cast<double>(outputs);
}

LossSums RunSquaredErrorPass(const MlpPass& pass, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const HiddenLayers layers = HiddenForward(pass, scratch);
  const int64_t last = layers.last;
  const int64_t hidden = pass.shape.sizes[last];
  const int64_t outputs = pass.shape.sizes[last + 1];
  const PanelMatrix out = Outputs(pass, layers, scratch);
  const LossSums sums{.loss = SquaredError(pass, layers, out)};
  if (pass.gradient == nullptr) return sums;

  float* gradient = pass.gradient + (layers.w - pass.params);
  WeightGradient(Units{layers.units[last]}, hidden, outputs, layers.count, out, pass.part.add(),
                 gradient);
  BiasGradient(outputs, layers.count, out, pass.part.add(), gradient + hidden * outputs);
  if (last == 0) return sums;
  Backward<false>(Units{out}, layers.rows, hidden, outputs,
                  TransposedWeights{layers.w, hidden, outputs, layers.buffer}, layers.derivative,
                  layers.gradients[last]);
  HiddenBackward(pass, layers);
  return sums;
}

// Writes the outputs of a pass to `to`.
void RunOutputs(const MlpPass& pass, float* to, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const HiddenLayers layers = HiddenForward(pass, scratch);
  const int64_t outputs = pass.shape.sizes[layers.last + 1];
  const PanelMatrix out = Outputs(pass, layers, scratch);
  for (int64_t p = 0; p * kWidth < outputs; ++p) {
    const int64_t valid = std::min(kWidth, outputs - p * kWidth);
    for (int64_t row = 0; row < layers.count; ++row) {
      std::copy_n(out.Panel(p) + row * kWidth, valid, to + row * outputs + p * kWidth);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(RunSquaredErrorPass);
HWY_EXPORT(RunOutputs);

}  // namespace

float SquaredErrorLoss(const MlpShape& shape, const MlpEvaluation& e, Workspace& scratch) {
  const auto run = [&](const BatchPart& part) {
    return LOPT_DISPATCH(RunSquaredErrorPass)(MakeMlpPass(shape, e, part), scratch);
  };
  return SumOverParts(e.batch, MostExamplesOfPass(shape, e), scratch, run).loss;
}

void MlpOutputs(const MlpShape& shape, const MlpEvaluation& e, std::span<float> outputs,
                Workspace& scratch) {
  float* to = outputs.data();
  SumOverParts(e.batch, MostExamplesOfPass(shape, e), scratch, [&](const BatchPart& part) {
    LOPT_DISPATCH(RunOutputs)(MakeMlpPass(shape, e, part), to, scratch);
    to += std::ssize(part.rows) * shape.sizes.back();
    return LossSums{};
  });
}

}  // namespace lopt
#endif  // HWY_ONCE
