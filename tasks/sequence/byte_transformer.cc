#include "lopt/tasks/sequence/byte_transformer.h"

#include <utility>

#include "lopt/base/options.h"
#include "lopt/tasks/sequence/transformer_kernel.h"

namespace lopt {
namespace {

constexpr char kByteTransformer[] = "ByteTransformer";

TransformerShape ShapeOnBytes(const ByteTransformerOptions& options) {
  CheckOptions(kByteTransformer, options);
  const auto& [width, layers, heads, embedding_std] = options.model;
  const TransformerShape shape{.length = options.text.length,
                               .width = width,
                               .layers = layers,
                               .heads = heads,
                               .outputs = TransformerShape::kBytes,
                               .causal = true};
  CheckTransformer(kByteTransformer, shape);
  return shape;
}

TaskParts ByteTransformerParts(const ByteTransformerOptions& options, const TextData& text) {
  const TransformerShape shape = ShapeOnBytes(options);
  TaskParts parts = BytePredictorParts(options.text, TextWindows(options.text, text));
  parts.params = TransformerLayout(shape);
  parts.flops = TransformerFlops(shape, options.text.batch_size);
  return parts;
}

}  // namespace

void ByteTransformerOptions::Visit(FieldVisitor& v) {
  text.Visit(v);
  model.Visit(v);
}

ByteTransformer::ByteTransformer(const ByteTransformerOptions& options,
                                 std::shared_ptr<const TextData> text)
    : TaskFamily(ByteTransformerParts(options, *text)),
      text_(std::move(text)),
      starts_(TextWindows(options.text, *text_).starts),
      shape_(ShapeOnBytes(options)),
      embedding_std_(options.model.embedding_std) {}

void ByteTransformer::DoInit(std::span<const float>, Key key, std::span<float> params,
                             std::span<float>) const {
  InitTransformer(params_layout(), embedding_std_, key, params);
}

void ByteTransformer::DoEvaluate(const TaskEvaluation& all, Workspace& scratch) const {
  for (int64_t row = 0; row < all.rows; ++row) {
    const TaskEvaluation e = RowOf(all, row);
    const ClassifierResult result = ByteTransformerLoss(
        shape_, {.params = e.params, .gradient = e.gradients},
        {.text = text_->bytes().data(), .starts = starts_.data(), .examples = e.examples}, scratch);
    e.losses[0] = result.loss;
    if (e.aux.empty()) continue;
    const auto bytes = static_cast<float>(std::ssize(e.examples) * shape_.length);
    e.aux[0] = static_cast<float>(result.correct) / bytes;
  }
}

std::vector<Pictures> ByteTransformer::DoShow(const TaskEvaluation& e, Workspace&) const {
  // A window is a line, a byte a pixel of its grey; ASCII ends in white.
  constexpr float kWhite = 127;
  Pictures picture{
      .name = "batch", .count = 1, .height = std::ssize(e.examples), .width = shape_.length + 1};
  for (const int32_t example : e.examples) {
    const int64_t start = starts_[static_cast<size_t>(example)];
    for (int64_t i = 0; i <= shape_.length; ++i) {
      picture.pixels.push_back(static_cast<float>(text_->bytes()[start + i]) / kWhite);
    }
  }
  return {picture};
}

}  // namespace lopt
