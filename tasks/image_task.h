#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/fields.h"
#include "tasks/image_data.h"
#include "tasks/task_family.h"
#include "tasks/task_resources.h"

namespace lopt {

// What every task on images shares, written natively or with LibTorch.

// Which images, and how many a step.
struct ImageOptions {
  int64_t image_size = 8;
  int64_t batch_size = 128;
  std::string data = "default";
  std::string distortion = "none";
  void Visit(FieldVisitor& v);
};

// The images that the options name, made once a run. Throws what ReadImageDirectory, Distort and
// ImageData throw, and Error if `data` is unknown or is "idx" and there is no data directory.
std::shared_ptr<const ImageData> GetImages(const ImageOptions& options,
                                           const TaskResources& resources);

// The parts of a family of classifiers of these images, for the task to add its params: no config,
// aux "accuracy", batches of `batch_size` rows, losses cut to [0, 1.5 ln(classes)]. Throws Error if
// batch_size is below 1 or the images have another size than image_size x image_size.
TaskParts ImageClassifierParts(const ImageOptions& options, const ImageData& data);

}  // namespace lopt
