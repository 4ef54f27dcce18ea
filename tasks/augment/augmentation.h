#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "lopt/base/config.h"
#include "lopt/base/fields.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/registry.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// Images are rows [height, width, channels] of numbers in [0, 1].
struct ImageExtent {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 1;
  int64_t features() const { return height * width * channels; }
};

// One row of an evaluation, as an augmentation sees it.
struct AugmentedRow {
  std::span<const float> config;       // the augmentation's numbers
  std::span<const float> model_state;  // likewise
  Split split = Split::kTrain;
  std::optional<Key> key;  // none: examples are evaluated that no key has drawn
  BatchPart part = {};     // that the images are; of a batch that is not shared it has this key
};

// Changes the images of a task on their way into its batches: a part of the task, whose config and
// model state it may have numbers in. Immutable and thread-safe; random numbers are those of the
// keys. `out` is always [images, stride], its padding zero.
class Augmentation {
 public:
  virtual ~Augmentation() = default;
  Augmentation(const Augmentation&) = delete;
  Augmentation& operator=(const Augmentation&) = delete;

  const Layout& config_layout() const { return config_; }
  const Layout& model_state_layout() const { return model_state_; }
  // Draws a task's numbers, and starts its model state. Default: nothing to draw, nothing to start.
  virtual void Sample(Key key, std::span<float> config) const;
  virtual void Init(std::span<float> model_state) const;

  // Whether the images of such rows change.
  virtual bool Changes(const AugmentedRow& row) const = 0;
  // The images of a batch, changed. Called only where Changes.
  virtual void Augment(const AugmentedRow& row, const ImageBatch& batch, float* out,
                       Workspace& scratch) const = 0;

  // What an augmentation learns from each time that the task trains. Default: nothing.
  virtual ProbeRecords records() const { return {}; }
  // Changes the images of `batch`, the probes of a part, for the network to judge; makes records [a
  // part's probes, R] of their losses; and updates the model state with records, one after the
  // other. Called only if there are probes.
  virtual void Probe(const BatchPart& part, const ImageBatch& batch, float* out,
                     Workspace& scratch) const;
  virtual void Record(const BatchPart& part, std::span<const float> losses,
                      std::span<float> records, Workspace& scratch) const;
  virtual void Learn(std::span<const float> records, std::span<float> model_state) const;

 protected:
  explicit Augmentation(Layout config, Layout model_state = {})
      : config_(std::move(config)), model_state_(std::move(model_state)) {}

 private:
  Layout config_;
  Layout model_state_;
};

// The augmentations of images of a shape. "None" makes a null pointer.
Registry<Augmentation, const ImageExtent&>& AugmentationRegistry();

// The option of a family that augments its images, {"type": "None"} by default.
Config NoAugmentation();
void VisitAugment(FieldVisitor& v, Config* augment);

}  // namespace lopt
