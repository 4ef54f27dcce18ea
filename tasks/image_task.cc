#include "tasks/image_task.h"

#include <fmt/core.h>

#include <cmath>

#include "base/error.h"
#include "base/options.h"

namespace lopt {
namespace {

constexpr char kWho[] = "image task";

// Where the images of `source` are read from; empty: they are drawn.
std::string ImageDirectory(ImageSource source, const TaskResources& resources) {
  if (source == ImageSource::kGlyphs) return "";
  const std::string& directory = resources.UseDataDir();
  Require(source != ImageSource::kIdx || !directory.empty(),
          "Image data 'idx' needs a directory with IDX files (--data-dir)");
  return directory;
}

}  // namespace

void ImageOptions::Visit(FieldVisitor& v) {
  v.Field("image_size", &image_size, Between(0, 256),
          "Images are resized to this height and width; 0 keeps the size that they are stored in.");
  v.Field("image_channels", &channels, Between(0, 3),
          "1 makes colour grey, 3 repeats grey for red, green and blue, 0 keeps the channels that "
          "are stored.");
  v.Field("batch_size", &batch_size, Between(1, 1000000), "Examples a step.");
  VisitSource(v);
}

void ImageOptions::VisitSource(FieldVisitor& v) {
  v.Choice(
      "data", &data, kImageSources,
      "The images: \"idx\" reads the IDX files of the data directory, \"glyphs\" draws digits, "
      "\"default\" is \"idx\" if a data directory is given and \"glyphs\" otherwise.");
  v.Choice("distortion", &distortion, kDistortions,
           "Makes another data set of the same images: bright and dark exchanged, a quarter of the "
           "brightness, noise on every pixel, or a fifth of the train split's labels drawn anew.");
  v.Choice("sampling", &sampling, kSamplings,
           "How batches are drawn: \"replacement\" takes any example each time, \"epoch\" goes "
           "through all in a new order again and again.");
}

std::shared_ptr<const ImageData> GetImages(const ImageOptions& options,
                                           const TaskResources& resources) {
  CheckOptions(kWho, options);
  const std::string directory = ImageDirectory(options.data, resources);
  return resources.Get<ImageData>(
      fmt::format("{} {} {} {}", options.image_size, options.channels,
                  NameOf("distortion", options.distortion, kDistortions), directory),
      [&] {
        RawImages raw = directory.empty() ? GenerateImages() : ReadImageDirectory(directory);
        SetChannels(options.channels, &raw);
        Distort(options.distortion, &raw);
        return std::make_shared<ImageData>(raw, options.image_size);
      });
}

TaskParts ImageClassifierParts(const ImageOptions& options, const ImageData& data) {
  CheckOptions(kWho, options);
  Require(options.image_size == 0 ||
              (data.height() == options.image_size && data.width() == options.image_size),
          "{}: images of {} x {}, wanted image_size {}", kWho, data.height(), data.width(),
          options.image_size);
  Require(options.channels == 0 || data.channels() == options.channels,
          "{}: images of {} channels, wanted {}", kWho, data.channels(), options.channels);
  TaskParts parts{.aux = Layout({{"accuracy", Shape{}}}),
                  .normalizer_maximum = 1.5 * std::log(static_cast<double>(data.classes()))};
  parts.data.batch_size = options.batch_size;
  parts.data.sampling = options.sampling;
  for (const Split split : kSplits) {
    parts.data.splits[static_cast<size_t>(split)] = data.range(split);
  }
  return parts;
}

std::vector<Pictures> BatchPictures(const ImageData& data, const ImageBatch& batch) {
  Pictures pictures{.name = "batch",
                    .count = std::ssize(batch.examples),
                    .height = data.height(),
                    .width = data.width(),
                    .channels = data.channels()};
  for (const int32_t example : batch.examples) {
    const float* image = batch.images + example * batch.stride;
    pictures.pixels.insert(pictures.pixels.end(), image, image + data.features());
  }
  return {std::move(pictures)};
}

}  // namespace lopt
