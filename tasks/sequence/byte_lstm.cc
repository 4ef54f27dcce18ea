#include "lopt/tasks/sequence/byte_lstm.h"

#include "lopt/base/options.h"
#include "lopt/tasks/sequence/embeddings.h"
#include "lopt/tasks/sequence/lstm_kernel.h"
#include "lopt/tasks/sequence/sequence_limits.h"

namespace lopt {
namespace {

constexpr char kByteLstm[] = "ByteLSTM";

LstmShape ShapeOf(const ByteLstmOptions& options) {
  CheckOptions(kByteLstm, options);
  const LstmShape shape{
      .length = options.text.length, .width = options.width, .layers = options.layers};
  RequireLength(kByteLstm, shape.length);
  RequireParams(kByteLstm, shape.width, shape.layers, shape.params());
  // A layer keeps states, cells and four gates of each byte, and works on twice the gates.
  constexpr int64_t kMatrices = 14;
  RequireScratch(kByteLstm,
                 static_cast<double>(shape.layers * shape.width) *
                     static_cast<double>(kMatrices * shape.sequences_of_part() * shape.length));
  return shape;
}

double Flops(const LstmShape& shape, int64_t sequences) {
  const auto bytes = static_cast<double>(sequences * shape.length);
  const auto weights =
      static_cast<double>(2 * shape.layers * shape.weights() + shape.width * kByteValues);
  return 3 * 2 * bytes * weights;
}

}  // namespace

void ByteLstmOptions::Visit(FieldVisitor& v) {
  text.Visit(v);
  v.Field("width", &width, Between(1, 10000), "Numbers of embeddings and of each state.");
  v.Field("layers", &layers, Between(1, 1000), "Recurrent layers.");
  VisitEmbeddingStd(v, &embedding_std);
}

ByteLstm::ByteLstm(const ByteLstmOptions& options, const std::shared_ptr<const TextData>& text)
    : ByteLstm(options, ShapeOf(options), text) {}

ByteLstm::ByteLstm(const ByteLstmOptions& options, const LstmShape& shape,
                   const std::shared_ptr<const TextData>& text)
    : BytePredictor({.params = LstmLayout(shape),
                     .flops = Flops(shape, options.text.batch_size),
                     .embedding_std = options.embedding_std},
                    options.text, text),
      shape_(shape) {}

ClassifierResult ByteLstm::LossOfRow(const TaskEvaluation& e, const ByteSequences& sequences,
                                     Workspace& scratch) const {
  return ByteLstmLoss(shape_, {.params = e.params, .gradient = e.gradients}, sequences, scratch);
}

}  // namespace lopt
