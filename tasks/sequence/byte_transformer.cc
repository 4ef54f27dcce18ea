#include "lopt/tasks/sequence/byte_transformer.h"

#include "lopt/base/options.h"
#include "lopt/tasks/sequence/sequence_limits.h"
#include "lopt/tasks/sequence/transformer_kernel.h"

namespace lopt {
namespace {

constexpr char kByteTransformer[] = "ByteTransformer";

TransformerShape ShapeOnBytes(const ByteTransformerOptions& options) {
  CheckOptions(kByteTransformer, options);
  RequireLength(kByteTransformer, options.text.length);
  const auto& [width, layers, heads, embedding_std] = options.model;
  const TransformerShape shape{.length = options.text.length,
                               .width = width,
                               .layers = layers,
                               .heads = heads,
                               .outputs = kByteValues,
                               .causal = true};
  CheckTransformer(kByteTransformer, shape);
  return shape;
}

}  // namespace

void ByteTransformerOptions::Visit(FieldVisitor& v) {
  text.Visit(v);
  model.Visit(v);
}

ByteTransformer::ByteTransformer(const ByteTransformerOptions& options,
                                 const std::shared_ptr<const TextData>& text)
    : ByteTransformer(options, ShapeOnBytes(options), text) {}

ByteTransformer::ByteTransformer(const ByteTransformerOptions& options,
                                 const TransformerShape& shape,
                                 const std::shared_ptr<const TextData>& text)
    : BytePredictor({.params = TransformerLayout(shape),
                     .flops = TransformerFlops(shape, options.text.batch_size),
                     .embedding_std = options.model.embedding_std},
                    options.text, text),
      shape_(shape) {}

ClassifierResult ByteTransformer::LossOfRow(const TaskEvaluation& e, const ByteSequences& sequences,
                                            Workspace& scratch) const {
  return ByteTransformerLoss(shape_, {.params = e.params, .gradient = e.gradients}, sequences,
                             scratch);
}

}  // namespace lopt
