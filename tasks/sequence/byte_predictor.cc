#include "lopt/tasks/sequence/byte_predictor.h"

#include <utility>

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

BytePredictor::BytePredictor(Layout params, double flops, const TextOptions& options,
                             const std::shared_ptr<const TextData>& text)
    : BytePredictor(std::move(params), flops, options, TextWindows(options, *text), text) {}

BytePredictor::BytePredictor(Layout params, double flops, const TextOptions& options,
                             TextWindows windows, std::shared_ptr<const TextData> text)
    : TaskFamily(PartsOf(std::move(params), flops, options, windows)),
      text_(std::move(text)),
      starts_(std::move(windows.starts)),
      length_(options.length) {}

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
