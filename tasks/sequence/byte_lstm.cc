#include "lopt/tasks/sequence/byte_lstm.h"

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/tasks/most_numbers.h"
#include "lopt/tasks/sequence/embeddings.h"
#include "lopt/tasks/sequence/lstm_kernel.h"

namespace lopt {
namespace {

constexpr char kByteLstm[] = "ByteLSTM";

LstmShape ShapeOf(const ByteLstmOptions& options) {
  CheckOptions(kByteLstm, options);
  const LstmShape shape{
      .length = options.text.length, .width = options.width, .layers = options.layers};
  const int64_t params =
      (2 * options.width + 1) * kByteValues + options.layers * shape.layer_params();
  Require(params <= kMostNumbers, "{}: {} params, wanted at most {}", kByteLstm, params,
          kMostNumbers);
  return shape;
}

TaskParts ByteLstmParts(const ByteLstmOptions& options, const TextData& text) {
  const LstmShape shape = ShapeOf(options);
  TaskParts parts = BytePredictorParts(options.text, TextWindows(options.text, text));
  parts.params = LstmLayout(shape);
  const auto bytes = static_cast<double>(options.text.batch_size * options.text.length);
  const auto weights =
      static_cast<double>(2 * shape.layers * shape.weights() + shape.width * kByteValues);
  parts.flops = 3 * 2 * bytes * weights;
  return parts;
}

}  // namespace

void ByteLstmOptions::Visit(FieldVisitor& v) {
  text.Visit(v);
  v.Field("width", &width, Between(1, 10000), "Numbers of embeddings and of each state.");
  v.Field("layers", &layers, Between(1, 1000), "Recurrent layers.");
  VisitEmbeddingStd(v, &embedding_std);
}

ByteLstm::ByteLstm(const ByteLstmOptions& options, std::shared_ptr<const TextData> text)
    : BytePredictor(ByteLstmParts(options, *text), options.text, text),
      shape_(ShapeOf(options)),
      embedding_std_(options.embedding_std) {}

void ByteLstm::DoInit(std::span<const float>, Key key, std::span<float> params,
                      std::span<float>) const {
  InitNetworkOnEmbeddings(params_layout(), embedding_std_, key, params);
}

ClassifierResult ByteLstm::LossOfRow(const TaskEvaluation& e, const ByteSequences& sequences,
                                     Workspace& scratch) const {
  return ByteLstmLoss(shape_, {.params = e.params, .gradient = e.gradients}, sequences, scratch);
}

}  // namespace lopt
