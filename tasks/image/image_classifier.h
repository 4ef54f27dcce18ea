#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lopt/tasks/image/image_batches.h"
#include "lopt/tasks/image/image_task.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// Evaluates a family of classifiers, whose aux is their accuracy, row by row: loss(row, batch,
// train, gradient, logits) gives the ClassifierResult of the row's network on a batch and, unless
// they are empty, the gradient and the logits [examples, classes]. `train` says that the batch is
// one of Split::kTrain; the images that an augmentation probes are judged without.
template <class Loss>
void EvaluateClassifiers(const ImageBatches& images, const TaskEvaluation& e, const Loss& loss,
                         Workspace& scratch) {
  const int64_t size = std::ssize(e.params) / e.rows;
  const int64_t examples = std::ssize(e.examples) / e.rows;
  for (int64_t row = 0; row < e.rows; ++row) {
    const Workspace::Frame frame(scratch);
    std::span<float> gradient;
    if (!e.gradients.empty()) gradient = e.gradients.subspan(row * size, size);
    const ImageBatch batch = images.Batch(e, row, scratch);
    const Answers answers = e.answers.logits.empty() ? Answers() : RowOf(e, row).answers;
    const ClassifierResult result =
        loss(row, batch, e.split == Split::kTrain, gradient, answers.logits);
    std::ranges::transform(batch.examples.first(answers.labels.size()), answers.labels.begin(),
                           [&](int32_t example) { return batch.labels[example]; });
    e.losses[row] = result.loss;
    if (!e.aux.empty()) {
      e.aux[row] = static_cast<float>(result.correct) / static_cast<float>(examples);
    }
    const auto loss_of = [&](const ImageBatch& one) { return loss(row, one, false, {}, {}).loss; };
    images.Learn(e, row, loss_of, scratch);
  }
}

// ImageClassifierParts with the config, the model state and the records of the augmentation.
TaskParts AugmentedClassifierParts(const ImageOptions& options, const ImageBatches& images);

// The base of native classifiers of images, which may be augmented. Its families have
// AugmentedClassifierParts, call images().Init in DoInit and evaluate by EvaluateClassifiers.
class ImageClassifier : public TaskFamily {
 public:
  // The images that the family is shown.
  const ImageBatches& images() const { return images_; }

 protected:
  // Throws Error as ImageBatches does.
  ImageClassifier(TaskParts parts, const Config& augment, std::shared_ptr<const ImageData> data);

 private:
  void DoSample(Key key, std::span<float> config) const override;
  void DoLearn(std::span<const float> config, std::span<const float> records,
               std::span<float> model_state, Workspace& scratch) const override;
  std::vector<Pictures> DoShow(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  ImageBatches images_;
};

}  // namespace lopt
