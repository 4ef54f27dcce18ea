#include "lopt/tasks/image/image_classifier.h"

#include <utility>

namespace lopt {

TaskParts AugmentedClassifierParts(const ImageOptions& options, const ImageBatches& images) {
  TaskParts parts = ImageClassifierParts(options, images.data());
  parts.config = images.config_layout();
  parts.records = images.records();
  parts.model_state = images.model_state_layout();
  return parts;
}

ImageClassifier::ImageClassifier(TaskParts parts, const Config& augment,
                                 std::shared_ptr<const ImageData> data)
    : TaskFamily(std::move(parts)), images_(augment, std::move(data)) {}

void ImageClassifier::DoSample(Key key, std::span<float> config) const {
  images_.Sample(key, config);
}

void ImageClassifier::DoLearn(std::span<const float>, std::span<const float> records,
                              std::span<float> model_state, Workspace&) const {
  images_.Learn(records, model_state);
}

std::vector<Pictures> ImageClassifier::DoShow(const TaskEvaluation& e, Workspace& scratch) const {
  return BatchPictures(images_.data(), images_.Batch(e, 0, scratch));
}

}  // namespace lopt
