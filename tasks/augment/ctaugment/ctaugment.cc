#include "lopt/tasks/augment/ctaugment/ctaugment.h"

#include <algorithm>
#include <cmath>

#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {
namespace {

// What a batch's key draws; 0 is the batch (TaskFamily).
constexpr uint64_t kTrainPolicies = 1;
constexpr uint64_t kProbePolicies = 2;

}  // namespace

void CtAugmentOptions::Visit(FieldVisitor& v) {
  v.Field("depth", &depth, Between(1, 100), "Operations that change an image.");
  v.Field("decay", &decay, {.min = 0, .max = 1, .open_min = true, .open_max = true},
          "Decay of the rates.");
  v.Field("threshold", &threshold, Between(0, 1),
          "Strengths whose rate is under this part of the best one's are not trained with; "
          "published: 0.80 (its trainings) and 0.85 (the default of its class).");
  v.Field("probes", &probes, Between(1, 1000000),
          "Images of each batch that are changed in any strength and judged, which updates the "
          "rates.");
  v.Choice("translate", &translate, kTranslateUnits,
           "What translate_x and translate_y move by at most: 0.3 pixels, which moves nothing and "
           "is what was published, or that fraction of the image.");
}

CtAugment::CtAugment(const CtAugmentOptions& options, const ImageExtent& extent)
    : Augmentation({}, RatesLayout()),
      options_(CheckOptions("CTAugment", options)),
      extent_(extent) {
  Require(extent.channels == 1 || extent.channels == 3,
          "CTAugment: images have {} channels, wanted 1 or 3", extent.channels);
}

void CtAugment::Init(std::span<float> model_state) const { std::ranges::fill(model_state, 1.0F); }

bool CtAugment::Changes(const AugmentedRow& row) const {
  return row.split == Split::kTrain && row.key.has_value();
}

void CtAugment::Augment(const AugmentedRow& row, const ImageBatch& batch, float* out,
                        Workspace& scratch) const {
  const Workspace::Frame frame(scratch);
  const std::span<double> probabilities = scratch.Take<double>(RatesLayout().size());
  BinProbabilities(row.model_state, options_.decay, options_.threshold, probabilities);
  const auto step = [&](std::span<const float> draws) { return TrainStep(draws, probabilities); };
  ApplyPolicies(Policies(row.part, kTrainPolicies, std::ssize(batch.examples), step, scratch),
                batch, out, scratch);
}

void CtAugment::Probe(const BatchPart& part, const ImageBatch& batch, float* out,
                      Workspace& scratch) const {
  const Workspace::Frame frame(scratch);
  ApplyPolicies(Policies(part, kProbePolicies, std::ssize(batch.examples), ProbeStep, scratch),
                batch, out, scratch);
}

void CtAugment::Record(const BatchPart& part, std::span<const float> losses,
                       std::span<float> records, Workspace& scratch) const {
  const Workspace::Frame frame(scratch);
  const std::span<const PolicyStep> policies =
      Policies(part, kProbePolicies, std::ssize(losses), ProbeStep, scratch);
  for (size_t i = 0; i < policies.size(); ++i) {
    const PolicyStep& step = policies[i];
    const float probability = std::exp(-losses[i / static_cast<size_t>(options_.depth)]);
    Pack({.operation = step.operation,
          .arguments = {static_cast<float>(step.arguments[0]),
                        static_cast<float>(step.arguments[1])},
          // A network that has diverged recognises nothing.
          .error = std::isfinite(probability) ? 2 * (1 - probability) : 2},
         records.subspan(i * kPackedRecord).first<kPackedRecord>());
  }
}

void CtAugment::Learn(std::span<const float> records, std::span<float> model_state) const {
  for (size_t i = 0; i < records.size(); i += kPackedRecord) {
    const OperationRecord record = Unpack(records.subspan(i).first<kPackedRecord>());
    UpdateRates({&record, 1}, options_.decay, model_state);
  }
}

template <class MakeStep>
std::span<PolicyStep> CtAugment::Policies(const BatchPart& part, uint64_t draw, int64_t count,
                                          const MakeStep& make, Workspace& scratch) const {
  const std::span<PolicyStep> steps = scratch.Take<PolicyStep>(count * options_.depth);
  const Workspace::Frame frame(scratch);
  const std::span<float> draws = scratch.Take<float>(std::ssize(steps) * kDrawsPerStep);
  Uniform(FoldIn(part.key, draw), draws, static_cast<uint64_t>(part.index * std::ssize(draws)));
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i] = make(draws.subspan(i * kDrawsPerStep, kDrawsPerStep));
  }
  return steps;
}

void CtAugment::ApplyPolicies(std::span<const PolicyStep> policies, const ImageBatch& batch,
                              float* out, Workspace& scratch) const {
  const int64_t features = extent_.features();
  const auto depth = static_cast<size_t>(options_.depth);
  const ByteImage image{.height = extent_.height,
                        .width = extent_.width,
                        .channels = extent_.channels,
                        .pixels = scratch.Take<uint8_t>(features).data()};
  for (size_t i = 0; i < batch.examples.size(); ++i, out += batch.stride) {
    const float* in = batch.images + batch.examples[i] * batch.stride;
    for (int64_t f = 0; f < features; ++f) {
      image.pixels[f] = static_cast<uint8_t>(static_cast<int>(510 * in[f] + 1) / 2);  // rounded
    }
    Apply(policies.subspan(i * depth, depth), options_.translate, image, scratch);
    for (int64_t f = 0; f < features; ++f) out[f] = static_cast<float>(image.pixels[f]) / 255.0F;
    std::fill(out + features, out + batch.stride, 0.0F);
  }
}

}  // namespace lopt
