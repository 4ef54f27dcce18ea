#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lopt/base/config.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/augment/augmentation.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// The images of a task as its network sees them, augmented where its options say so. A native
// family of image tasks shows the option (VisitAugment in its Visit), begins its config and its
// model state with these layouts, has these records, and calls Sample, Init and Learn in DoSample,
// DoInit and DoLearn. ImageClassifier (image_classifier.h) does most of this for classifiers. A
// family evaluates each row so, or lets EvaluateClassifiers do it:
//
//   const Workspace::Frame frame(scratch);
//   const ImageBatch batch = images_.Batch(e, row, scratch);
//   ... loss, gradient and aux of `batch` ...
//   images_.Learn(e, row, [&](const ImageBatch& one) { return loss of this image; }, scratch);
//
// Without an augmentation a batch is rows of the data set, and nothing is copied.
class ImageBatches {
 public:
  // `augment` is the option. Throws Error as AugmentationRegistry().Make does.
  ImageBatches(const Config& augment, std::shared_ptr<const ImageData> data);

  const ImageData& data() const { return *data_; }
  bool augmented() const { return augmentation_ != nullptr; }
  // The type of the augmentation, empty without one, and whether it changes the images of every
  // split, not those of kTrain alone.
  const std::string& augmentation() const { return augmentation_type_; }
  bool ChangesEverySplit() const;
  // The first numbers of a family's config and of its model state.
  const Layout& config_layout() const { return config_layout_; }
  const Layout& model_state_layout() const { return model_state_layout_; }
  // Both write these first numbers of the spans that DoSample and DoInit are given.
  void Sample(Key key, std::span<float> config) const;
  void Init(std::span<float> model_state) const;

  // The batch of a row of an evaluation that DoEvaluate is given; in scratch memory of the caller's
  // frame.
  ImageBatch Batch(const TaskEvaluation& e, int64_t row, Workspace& scratch) const;

  // What a family has as TaskParts::records, and does in DoLearn.
  ProbeRecords records() const;
  void Learn(std::span<const float> records, std::span<float> model_state) const;

  // Updates the row's model state after its batch, or makes its records, where an augmentation
  // learns and the split is kTrain: loss(batch of one image) -> float, the softmax cross-entropy of
  // the image, is called for each of its probes.
  template <class Loss>
  void Learn(const TaskEvaluation& e, int64_t row, const Loss& loss, Workspace& scratch) const {
    if (!Learns(e)) return;
    const Workspace::Frame frame(scratch);
    ImageBatch probes = Probes(e, row, scratch);
    const std::span<const int32_t> all = probes.examples;
    const std::span<float> losses = scratch.Take<float>(std::ssize(all));
    for (size_t p = 0; p < all.size(); ++p) {
      probes.examples = all.subspan(p, 1);
      losses[p] = loss(probes);
    }
    NoteLosses(e, row, losses, scratch);
  }

 private:
  bool Learns(const TaskEvaluation& e) const;
  ImageBatch Probes(const TaskEvaluation& e, int64_t row, Workspace& scratch) const;
  void NoteLosses(const TaskEvaluation& e, int64_t row, std::span<const float> losses,
                  Workspace& scratch) const;
  AugmentedRow RowOf(const TaskEvaluation& e, int64_t row) const;
  ImageBatch PlainBatch(const TaskEvaluation& e, int64_t row) const;
  // A batch of n images to be written, with the labels of these examples.
  struct WritableBatch {
    float* images;
    ImageBatch batch;
  };
  WritableBatch NewBatch(std::span<const int32_t> examples, Workspace& scratch) const;

  std::shared_ptr<const ImageData> data_;
  std::shared_ptr<const Augmentation> augmentation_;  // may be null
  std::string augmentation_type_;
  Layout config_layout_;
  Layout model_state_layout_;
};

}  // namespace lopt
