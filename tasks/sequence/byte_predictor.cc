#include "lopt/tasks/sequence/byte_predictor.h"

#include <utility>

#include "lopt/tasks/sequence/embeddings.h"

namespace lopt {
namespace {

TaskParts PartsOf(Layout params, double flops, const TextOptions& options,
                  const TextWindows& windows) {
  TaskParts parts = BytePredictorParts(options, windows);
  parts.params = std::move(params);
  parts.flops = flops;
  return parts;
}

}  // namespace

BytePredictor::BytePredictor(Model model, const TextOptions& options,
                             const std::shared_ptr<const TextData>& text)
    : BytePredictor(std::move(model), options, TextWindows(options, *text), text) {}

BytePredictor::BytePredictor(Model model, const TextOptions& options, TextWindows windows,
                             std::shared_ptr<const TextData> text)
    : TaskFamily(PartsOf(std::move(model.params), model.flops, options, windows)),
      text_(std::move(text)),
      starts_(std::move(windows.starts)),
      length_(options.length),
      embedding_std_(model.embedding_std) {}

void BytePredictor::DoInit(std::span<const float>, Key key, std::span<float> params,
                           std::span<float>) const {
  InitNetworkOnEmbeddings(params_layout(), embedding_std_, key, params);
}

void BytePredictor::DoEvaluate(const TaskEvaluation& all, Workspace& scratch) const {
  for (int64_t row = 0; row < all.rows; ++row) {
    const TaskEvaluation e = RowOf(all, row);
    const ClassifierResult result = LossOfRow(e,
                                              {.text = text_->bytes().data(),
                                               .starts = starts_.data(),
                                               .length = length_,
                                               .examples = e.examples},
                                              scratch);
    e.losses[0] = result.loss;
    if (e.aux.empty()) continue;
    const auto bytes = static_cast<float>(std::ssize(e.examples) * length_);
    e.aux[0] = static_cast<float>(result.correct) / bytes;
  }
}

std::vector<Pictures> BytePredictor::DoShow(const TaskEvaluation& e, Workspace&) const {
  return {PictureOfWindows(*text_, starts_, length_, e.examples)};
}

}  // namespace lopt
