#include "lopt/tasks/sequence/transformer_kernel.h"

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/tasks/sequence/transformer_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/tasks/layers/batch_parts-inl.h"
#include "lopt/tasks/layers/softmax_layer-inl.h"
#include "lopt/tasks/sequence/transformer-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// What is to be classified: `count` rows of units [width].
struct Classified {
  PanelMatrix units;
  PanelMatrix gradient;  // of them, out
  int64_t count;
  int64_t rows;
  int64_t capacity;
  std::span<const int32_t> labels;  // may be read up to a multiple of kWidth
  float scale;                      // of the losses in the gradient
  float* logits;                    // [count, outputs], out; null: not wanted
};

// The linear layer at the end, its losses and gradients.
LossSums RunHead(const TransformerPass& pass, const Classified& of, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const int64_t width = pass.shape.width;
  const int64_t classes = pass.shape.outputs;
  const float* w = pass.head() + pass.shape.norm_params();
  const float* b = w + width * classes;
  float* slopes = scratch.Take<float>(classes * of.capacity).data();
  ClearRows(of.units, width, of.rows);
  LossSums sums;
  for (int64_t first = 0; first < of.count; first += kMaxExamples) {
    const int64_t count = std::min(kMaxExamples, of.count - first);
    const LossSums more = LastLayer(width, classes, of.labels.subspan(first, count), of.scale,
                                    PanelMatrix{of.units.data + first * kWidth, of.units.rows}, w,
                                    b, slopes + first, of.capacity, pass.buffer,
                                    of.logits == nullptr ? nullptr : of.logits + first * classes);
    sums.loss += more.loss;
    sums.correct += more.correct;
  }
  if (pass.gradient == nullptr) return sums;
  float* gradient = pass.GradientOf(w);
  LastWeightGradient(slopes, of.capacity, of.units, width, classes, of.count, pass.add, gradient,
                     gradient + width * classes);
  Backward<true>(PlainRows{slopes, of.capacity}, of.rows, width, classes,
                 TransposedWeights{w, width, classes, pass.buffer}, Derivative::kOne, of.gradient);
  return sums;
}

// Calls body(place, element) with functions of a column k that give the number of x there.
template <class Body>
HWY_INLINE void ForPlaces(const TransformerPass& pass, PanelMatrix x, const Body& body) {
  for (int64_t row = 0; row < pass.count; ++row) {
    body(row, [&](int64_t k) -> float& { return x.Panel(k / kWidth)[row * kWidth + k % kWidth]; });
  }
}

// x += the embeddings of places.
HWY_NOINLINE void AddPlaces(const TransformerPass& pass, const float* places) {
  const int64_t length = pass.shape.length;
  ForPlaces(pass, pass.x, [&](int64_t row, const auto& x) {
    for (int64_t k = 0; k < pass.shape.width; ++k) x(k) += places[k * length + row % length];
  });
}

HWY_NOINLINE void PlaceGradient(const TransformerPass& pass, PanelMatrix of_x, float* gradient) {
  const int64_t length = pass.shape.length;
  if (!pass.add) std::fill_n(gradient, pass.shape.width * length, 0.0f);
  ForPlaces(pass, of_x, [&](int64_t row, const auto& x) {
    for (int64_t k = 0; k < pass.shape.width; ++k) gradient[k * length + row % length] += x(k);
  });
}

LossSums RunBytes(const TransformerShape& shape, const TransformerEvaluation& e,
                  const BytePart& part, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const TransformerPass pass = TakePass(shape, e, part.sequences, part.add, scratch);
  const int64_t width = shape.width;
  constexpr int64_t kBytes = TransformerShape::kBytes;
  const float* embedding = e.params.data();
  ForPlaces(pass, pass.x, [&](int64_t row, const auto& x) {
    for (int64_t k = 0; k < width; ++k) x(k) = embedding[k * kBytes + part.bytes[row]];
  });
  AddPlaces(pass, embedding + width * kBytes);
  RunBlocks(pass, scratch);
  const PanelMatrix of_x = TakePanels(pass.capacity, width, scratch);
  const LossSums sums = RunHead(pass,
                                {.units = pass.last.out,
                                 .gradient = of_x,
                                 .count = pass.count,
                                 .rows = pass.rows,
                                 .capacity = pass.capacity,
                                 .labels = part.next,
                                 .scale = part.scale,
                                 .logits = nullptr},
                                scratch);
  if (pass.gradient == nullptr) return sums;
  BlocksBackward(pass, of_x, scratch);
  float* gradient = e.gradient.data();
  if (!part.add) std::fill_n(gradient, width * kBytes, 0.0f);
  ForPlaces(pass, of_x, [&](int64_t row, const auto& x) {
    for (int64_t k = 0; k < width; ++k) gradient[k * kBytes + part.bytes[row]] += x(k);
  });
  PlaceGradient(pass, of_x, gradient + width * kBytes);
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
                                {.units = means,
                                 .gradient = of_means,
                                 .count = count,
                                 .rows = RoundUp(count, kRows),
                                 .capacity = capacity,
                                 .labels = part.labels,
                                 .scale = part.scale,
                                 .logits = LogitsOfPart(e.logits, shape.outputs, part)},
                                scratch);
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

// Sequences of a part: as many as have 256 places, which the caches hold.
int64_t SequencesOfPart(const TransformerShape& shape) {
  constexpr int64_t kPlacesOfPart = 256;
  return std::max<int64_t>(1, kPlacesOfPart / shape.length);
}

}  // namespace

ClassifierResult ByteTransformerLoss(const TransformerShape& shape, const TransformerEvaluation& e,
                                     const ByteSequences& sequences, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  const int64_t most = SequencesOfPart(shape);
  const int64_t length = shape.length;
  const std::span<int32_t> bytes = scratch.Take<int32_t>(most * length + kSpareRows);
  const std::span<int32_t> next = scratch.Take<int32_t>(most * length + kSpareRows);
  const auto count = std::ssize(sequences.examples);
  LossSums sums;
  for (int64_t first = 0; first < count; first += most) {
    const int64_t size = std::min(most, count - first);
    for (int64_t i = 0; i < size; ++i) {
      const uint8_t* from = sequences.text + sequences.starts[sequences.examples[first + i]];
      std::copy_n(from, length, bytes.begin() + i * length);
      std::copy_n(from + 1, length, next.begin() + i * length);
    }
    std::fill_n(&next[size * length], kSpareRows, 0);
    const LossSums more = LOPT_DISPATCH(RunBytes)(shape, e,
                                                  {.bytes = bytes.first(size * length),
                                                   .next = next.first(size * length),
                                                   .sequences = size,
                                                   .scale = 1 / static_cast<float>(count * length),
                                                   .add = first > 0},
                                                  scratch);
    sums.loss += more.loss;
    sums.correct += more.correct;
  }
  return {static_cast<float>(sums.loss / static_cast<double>(count * length)), sums.correct};
}

ClassifierResult ImageTransformerLoss(const TransformerShape& shape, const TransformerEvaluation& e,
                                      const PatchSequences& sequences, Workspace& scratch) {
  return SumOverParts(sequences.batch, SequencesOfPart(shape), scratch, [&](const BatchPart& part) {
    return LOPT_DISPATCH(RunImages)(shape, e, sequences, part, scratch);
  });
}

}  // namespace lopt
#endif  // HWY_ONCE
