#include "lopt/tasks/sequence/transformer_kernel.h"

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/tasks/sequence/transformer_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/tasks/layers/batch_parts-inl.h"
#include "lopt/tasks/layers/classifier_head-inl.h"
#include "lopt/tasks/sequence/byte_embedding-inl.h"
#include "lopt/tasks/sequence/byte_parts.h"
#include "lopt/tasks/sequence/transformer-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// The head on `units` [count, width], with the buffer of the pass.
ClassifierHead HeadOn(const TransformerPass& pass, PanelMatrix units, int64_t count,
                      std::span<const int32_t> labels, float scale, float* logits) {
  const int64_t width = pass.shape.width;
  ClearRows(units, width, RoundUp(count, kRows));
  return {.units = units,
          .inputs = width,
          .classes = pass.shape.outputs,
          .count = count,
          .capacity = RoundUp(count, kWidth),
          .labels = labels,
          .scale = scale,
          .w = pass.head() + pass.shape.norm_params(),
          .buffer = pass.buffer,
          .logits = logits};
}

// The losses, and, where wanted, the gradients of the head and of its units.
LossSums RunHead(const TransformerPass& pass, const ClassifierHead& head, PanelMatrix of_units,
                 Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  float* slopes = scratch.Take<float>(head.classes * head.capacity).data();
  const LossSums sums = ClassifierLosses(head, slopes);
  if (pass.gradient == nullptr) return sums;
  ClassifierWeightGradient(head, slopes, pass.add, pass.GradientOf(head.w));
  ClassifierBackward(head, slopes, Derivative::kOne, of_units);
  return sums;
}

// x += the embeddings of places.
HWY_NOINLINE void AddPlaces(const TransformerPass& pass, const float* places) {
  const int64_t length = pass.shape.length;
  ForRows(pass.x, pass.count, [&](int64_t row, const auto& x) {
    for (int64_t k = 0; k < pass.shape.width; ++k) x(k) += places[k * length + row % length];
  });
}

HWY_NOINLINE void PlaceGradient(const TransformerPass& pass, PanelMatrix of_x, float* gradient) {
  const int64_t length = pass.shape.length;
  if (!pass.add) std::fill_n(gradient, pass.shape.width * length, 0.0f);
  ForRows(of_x, pass.count, [&](int64_t row, const auto& x) {
    for (int64_t k = 0; k < pass.shape.width; ++k) gradient[k * length + row % length] += x(k);
  });
}

LossSums RunBytes(const TransformerShape& shape, const TransformerEvaluation& e,
                  const BytePart& part, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const TransformerPass pass = TakePass(shape, e, part.sequences, part.add, scratch);
  const int64_t width = shape.width;
  const float* embedding = e.params.data();
  const auto byte_of = [&](int64_t row) { return part.bytes[static_cast<size_t>(row)]; };
  LookUpBytes(embedding, width, pass.count, byte_of, pass.x);
  AddPlaces(pass, embedding + width * kByteValues);
  RunBlocks(pass, scratch);
  const PanelMatrix of_x = TakePanels(pass.capacity, width, scratch);
  const LossSums sums = RunHead(
      pass, HeadOn(pass, pass.last.out, pass.count, part.next, part.scale, nullptr), of_x, scratch);
  if (pass.gradient == nullptr) return sums;
  BlocksBackward(pass, of_x, scratch);
  float* gradient = e.gradient.data();
  EmbeddingGradient(of_x, width, pass.count, byte_of, part.add, gradient);
  PlaceGradient(pass, of_x, gradient + width * kByteValues);
  return sums;
}

// The patches of a part's images, one row each, with zeros up to the stride.
PlainRows TakePatches(const TransformerPass& pass, const PatchSequences& sequences,
                      const BatchPart& part, Workspace& scratch) {
  const int64_t stride = RoundUp(pass.shape.inputs, kFloatsPerLine);
  const std::span<float> patches = scratch.Take<float>(pass.capacity * stride);
  std::ranges::fill(patches, 0.0f);
  const int64_t across = sequences.width / sequences.patch;
  const int64_t line = sequences.patch * sequences.channels;
  for (int64_t row = 0; row < pass.count; ++row) {
    const int64_t place = row % pass.shape.length;
    const float* image = part.rows[row / pass.shape.length];
    const float* from = image + (place / across * sequences.patch * across + place % across) * line;
    float* to = &patches[row * stride];
    for (int64_t y = 0; y < sequences.patch; ++y) {
      std::copy_n(from + y * across * line, line, to + y * line);
    }
  }
  return {patches.data(), stride};
}

// The mean over a sequence's places of the last norm's outputs.
HWY_NOINLINE void MeanOfPlaces(const TransformerPass& pass, PanelMatrix means) {
  ClearRows(means, pass.shape.width, 0);
  const int64_t length = pass.shape.length;
  const V share = hn::Set(d, 1 / static_cast<float>(length));
  ForPanels(pass.shape.width, [&](int64_t p, auto kV) HWY_ATTR {
    for (int64_t row = 0; row < pass.count; ++row) {
      Unrolled<kV>([&](auto v) HWY_ATTR {
        float* to = means.Panel(p) + row / length * kWidth + v * kLanes;
        const V x = hn::Load(d, pass.last.out.Panel(p) + row * kWidth + v * kLanes);
        hn::Store(hn::MulAdd(x, share, hn::Load(d, to)), d, to);
      });
    }
  });
}

// The gradient of the last norm's outputs from that of their means.
HWY_NOINLINE void MeanBackward(const TransformerPass& pass, PanelMatrix of_means, PanelMatrix to) {
  ClearRows(to, pass.shape.width, 0);
  const int64_t length = pass.shape.length;
  const V share = hn::Set(d, 1 / static_cast<float>(length));
  ForPanels(pass.shape.width, [&](int64_t p, auto kV) HWY_ATTR {
    for (int64_t row = 0; row < pass.count; ++row) {
      Unrolled<kV>([&](auto v) HWY_ATTR {
        const V x = hn::Load(d, of_means.Panel(p) + row / length * kWidth + v * kLanes);
        hn::Store(hn::Mul(x, share), d, to.Panel(p) + row * kWidth + v * kLanes);
      });
    }
  });
}

LossSums RunImages(const TransformerShape& shape, const TransformerEvaluation& e,
                   const PatchSequences& sequences, const BatchPart& part, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const auto count = static_cast<int64_t>(part.rows.size());
  const TransformerPass pass = TakePass(shape, e, count, part.add(), scratch);
  const int64_t width = shape.width;
  const PlainRows patches = TakePatches(pass, sequences, part, scratch);
  const float* w = e.params.data();
  const float* b = w + shape.inputs * width;
  Forward(patches, pass.rows, shape.inputs, width, w, b, /*relu=*/false, pass.x, pass.buffer);
  AddPlaces(pass, b + width);
  RunBlocks(pass, scratch);
  const int64_t capacity = RoundUp(count, kWidth);
  const PanelMatrix means = TakePanels(capacity, width, scratch);
  const PanelMatrix of_means = TakePanels(capacity, width, scratch);
  MeanOfPlaces(pass, means);
  const LossSums sums = RunHead(pass,
                                HeadOn(pass, means, count, part.labels, part.scale,
                                       LogitsOfPart(e.logits, shape.outputs, part)),
                                of_means, scratch);
  if (pass.gradient == nullptr) return sums;
  const PanelMatrix of_x = TakePanels(pass.capacity, width, scratch);
  MeanBackward(pass, of_means, of_x);
  BlocksBackward(pass, of_x, scratch);
  float* gradient = e.gradient.data();
  WeightGradient(patches, shape.inputs, width, pass.count, of_x, pass.add, gradient);
  BiasGradient(width, pass.count, of_x, pass.add, gradient + shape.inputs * width);
  PlaceGradient(pass, of_x, gradient + (shape.inputs + 1) * width);
  return sums;
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(RunBytes);
HWY_EXPORT(RunImages);

}  // namespace

ClassifierResult ByteTransformerLoss(const TransformerShape& shape, const TransformerEvaluation& e,
                                     const ByteSequences& sequences, Workspace& scratch) {
  return SumOverByteParts(sequences, shape.sequences_of_part(), scratch, [&](const BytePart& part) {
    return LOPT_DISPATCH(RunBytes)(shape, e, part, scratch);
  });
}

ClassifierResult ImageTransformerLoss(const TransformerShape& shape, const TransformerEvaluation& e,
                                      const PatchSequences& sequences, Workspace& scratch) {
  return SumOverParts(sequences.batch, shape.sequences_of_part(), scratch,
                      [&](const BatchPart& part) {
                        return LOPT_DISPATCH(RunImages)(shape, e, sequences, part, scratch);
                      });
}

}  // namespace lopt
#endif  // HWY_ONCE
