#include "tasks/image_task.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "tasks/distortion.h"

namespace lopt {
namespace {

const std::vector<std::string>& ImageSources() {
  static const std::vector<std::string> sources = {"default", "glyphs", "idx"};
  return sources;
}

// Where the images of `source` are read from; empty: they are drawn.
std::string ImageDirectory(const std::string& source, const TaskResources& resources) {
  Require(std::find(ImageSources().begin(), ImageSources().end(), source) != ImageSources().end(),
          "There is no image data '{}'. Choices: default, glyphs, idx", source);
  if (source == "glyphs") return "";
  const std::string& directory = resources.UseDataDir();
  Require(source != "idx" || !directory.empty(),
          "Image data 'idx' needs a directory with IDX files (--data-dir)");
  return directory;
}

}  // namespace

void ImageOptions::Visit(FieldVisitor& v) {
  v.Field("image_size", &image_size, AtLeast(1), "Images are resized to this height and width.");
  v.Field("batch_size", &batch_size, AtLeast(1), "Examples a step.");
  v.Field("data", &data, ImageSources(),
          "The images: \"idx\" reads the IDX files of the data directory, \"glyphs\" draws digits, "
          "\"default\" is \"idx\" if a data directory is given and \"glyphs\" otherwise.");
  v.Field("distortion", &distortion, Distortions(),
          "Makes another data set of the same images: bright and dark exchanged, a quarter of the "
          "brightness, noise on every pixel, or a fifth of the train split's labels drawn anew.");
}

std::shared_ptr<const ImageData> GetImages(const ImageOptions& options,
                                           const TaskResources& resources) {
  const std::string directory = ImageDirectory(options.data, resources);
  return resources.Get<ImageData>(
      fmt::format("{} {} {}", options.image_size, options.distortion, directory), [&] {
        RawImages raw = directory.empty() ? GenerateImages() : ReadImageDirectory(directory);
        Distort(options.distortion, &raw);
        return std::make_shared<ImageData>(raw, options.image_size);
      });
}

TaskParts ImageClassifierParts(const ImageOptions& options, const ImageData& data) {
  Require(data.features() == options.image_size * options.image_size,
          "image task: images of {} numbers, wanted image_size {} squared", data.features(),
          options.image_size);
  Require(options.batch_size >= 1, "image task: batch_size must be at least 1, got {}",
          options.batch_size);
  TaskParts parts{.aux = Layout({{"accuracy", Shape{}}}),
                  .normalizer_maximum = 1.5 * std::log(static_cast<double>(data.classes()))};
  parts.data.batch_size = options.batch_size;
  for (const Split split : kSplits) {
    parts.data.splits[static_cast<size_t>(split)] = data.range(split);
  }
  return parts;
}

}  // namespace lopt
