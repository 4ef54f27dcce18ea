#pragma once

#include <cstdint>
#include <memory>

#include "lopt/base/fields.h"
#include "lopt/tasks/data/csv_images.h"
#include "lopt/tasks/data/distortion.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/tasks/image/image_batch.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tasks/task_resources.h"

namespace lopt {

// What every task on images shares, written natively or with LibTorch.

// Where images come from. kDefault is kIdx if a data directory is given and kGlyphs otherwise.
enum class ImageSource {
  kDefault,
  kGlyphs,          // drawn: glyphs.h
  kColouredGlyphs,  // coloured_glyphs.h
  kMnist1d,         // mnist1d.h
  kIdx,             // files of the data directory: idx.h
  kCifar10,         // cifar.h
  kCifar100,
  kCsv,  // csv_images.h
  kNpz,  // npz_images.h
};
inline constexpr Named<ImageSource> kImageSources[] = {
    {ImageSource::kDefault, "default"},
    {ImageSource::kGlyphs, "glyphs"},
    {ImageSource::kColouredGlyphs, "coloured_glyphs"},
    {ImageSource::kMnist1d, "mnist1d"},
    {ImageSource::kIdx, "idx"},
    {ImageSource::kCifar10, "cifar10"},
    {ImageSource::kCifar100, "cifar100"},
    {ImageSource::kCsv, "csv"},
    {ImageSource::kNpz, "npz"}};

// Which images, and how many a step.
struct ImageOptions {
  int64_t image_size = 8;
  int64_t channels = 0;
  int64_t batch_size = 128;
  ImageSource data = ImageSource::kDefault;
  CsvOptions csv = {};
  Distortion distortion = Distortion::kNone;
  Sampling sampling = Sampling::kReplacement;
  void Visit(FieldVisitor& v);
  // All but sizes and channels, for families that choose those.
  void VisitSource(FieldVisitor& v);
};

// The images of a source of images as they are stored: drawn, or read from the files of a directory
// with the checks and warnings of their reader (JoinSets). Throws Error as the readers do, and if
// the source is no images.
RawImages LoadImages(ImageSource source, const std::string& directory, const CsvOptions& csv);

// The sources of which a directory has files.
std::vector<ImageSource> SourcesIn(const std::string& directory);

// The images that the options name, made once a run. Throws what CheckOptions, the sources' readers
// and SetChannels throw, and Error if `data` is read from files and there is no data directory, or
// is signals and another option is for images.
std::shared_ptr<const ImageData> GetImages(const ImageOptions& options,
                                           const TaskResources& resources);

// The parts of a family of classifiers of these images, for the task to add its params: no config,
// aux "accuracy", their classes, batches of `batch_size` rows, losses cut to [0, 1.5 ln(classes)].
// Throws Error as CheckOptions does and if the images have another size or other channels than the
// options say.
TaskParts ImageClassifierParts(const ImageOptions& options, const ImageData& data);

// A batch of images of the size of the data set's, called "batch"; signals as curves.
std::vector<Pictures> BatchPictures(const ImageData& data, const ImageBatch& batch);

}  // namespace lopt
