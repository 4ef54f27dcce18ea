#include "lopt/tasks/sequence/byte_predictor.h"

#include <utility>

namespace lopt {

BytePredictor::BytePredictor(TaskParts parts, const TextOptions& options,
                             std::shared_ptr<const TextData> text)
    : TaskFamily(std::move(parts)),
      text_(std::move(text)),
      starts_(TextWindows(options, *text_).starts),
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
  // A window is a line, a byte a pixel of its grey; ASCII ends in white.
  constexpr float kWhite = 127;
  Pictures picture{
      .name = "batch", .count = 1, .height = std::ssize(e.examples), .width = length_ + 1};
  for (const int32_t example : e.examples) {
    const int64_t start = starts_[static_cast<size_t>(example)];
    for (int64_t i = 0; i <= length_; ++i) {
      picture.pixels.push_back(static_cast<float>(text_->bytes()[start + i]) / kWhite);
    }
  }
  return {picture};
}

}  // namespace lopt
