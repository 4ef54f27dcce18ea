#include "lopt/tasks/sequence/byte_transformer.h"

#include "lopt/base/options.h"
#include "lopt/tasks/sequence/embeddings.h"
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
    : BytePredictor(TransformerLayout(ShapeOnBytes(options)),
                    TransformerFlops(ShapeOnBytes(options), options.text.batch_size), options.text,
                    text),
      shape_(ShapeOnBytes(options)),
      embedding_std_(options.model.embedding_std) {}

void ByteTransformer::DoInit(std::span<const float>, Key key, std::span<float> params,
                             std::span<float>) const {
  InitNetworkOnEmbeddings(params_layout(), embedding_std_, key, params);
}

ClassifierResult ByteTransformer::LossOfRow(const TaskEvaluation& e, const ByteSequences& sequences,
                                            Workspace& scratch) const {
  return ByteTransformerLoss(shape_, {.params = e.params, .gradient = e.gradients}, sequences,
                             scratch);
}

}  // namespace lopt
