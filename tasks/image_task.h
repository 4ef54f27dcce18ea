#pragma once

#include <cstdint>
#include <memory>

#include "base/fields.h"
#include "tasks/distortion.h"
#include "tasks/image_batch.h"
#include "tasks/image_data.h"
#include "tasks/task_family.h"
#include "tasks/task_resources.h"

namespace lopt {

// What every task on images shares, written natively or with LibTorch.

// Where images come from: the IDX files of the data directory if one is given and drawn digits
// (glyphs.h) otherwise; drawn digits; the files, and a directory must be given.
enum class ImageSource { kDefault, kGlyphs, kIdx };
inline constexpr Named<ImageSource> kImageSources[] = {{ImageSource::kDefault, "default"},
                                                       {ImageSource::kGlyphs, "glyphs"},
                                                       {ImageSource::kIdx, "idx"}};

// Which images, and how many a step.
struct ImageOptions {
  int64_t image_size = 8;
  int64_t channels = 0;
  int64_t batch_size = 128;
  ImageSource data = ImageSource::kDefault;
  Distortion distortion = Distortion::kNone;
  Sampling sampling = Sampling::kReplacement;
  void Visit(FieldVisitor& v);
  void VisitSource(FieldVisitor& v);  // `data` and `distortion`, for families that choose the rest
};

// The images that the options name, made once a run. Throws what CheckOptions, ReadImageDirectory
// and SetChannels throw, and Error if `data` is kIdx and there is no data directory.
std::shared_ptr<const ImageData> GetImages(const ImageOptions& options,
                                           const TaskResources& resources);

// The parts of a family of classifiers of these images, for the task to add its params: no config,
// aux "accuracy", batches of `batch_size` rows, losses cut to [0, 1.5 ln(classes)]. Throws Error as
// CheckOptions does and if the images have another size or other channels than the options say.
TaskParts ImageClassifierParts(const ImageOptions& options, const ImageData& data);

// A batch of images of the size of the data set's, called "batch".
std::vector<Pictures> BatchPictures(const ImageData& data, const ImageBatch& batch);

}  // namespace lopt
