#include "lopt/tasks/image/image_task.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/option_words.h"
#include "lopt/base/options.h"
#include "lopt/tasks/batch_rows.h"
#include "lopt/tasks/data/cifar.h"
#include "lopt/tasks/data/coloured_glyphs.h"
#include "lopt/tasks/data/data_checksums.h"
#include "lopt/tasks/data/glyphs.h"
#include "lopt/tasks/data/gzip_file.h"
#include "lopt/tasks/data/idx.h"
#include "lopt/tasks/data/mnist1d.h"
#include "lopt/tasks/data/npz_images.h"

namespace lopt {
namespace {

constexpr char kWho[] = "image task";

ImageSource ResolvedSource(ImageSource source, const TaskResources& resources) {
  if (source != ImageSource::kDefault) return source;
  return resources.UseDataDir().empty() ? ImageSource::kGlyphs : ImageSource::kIdx;
}

const char* SourceName(ImageSource source) { return NameOf("data", source, kImageSources); }

bool IsReadFromFiles(ImageSource source) {
  return source != ImageSource::kGlyphs && source != ImageSource::kColouredGlyphs &&
         source != ImageSource::kMnist1d;
}

std::shared_ptr<const ImageData> LoadSignals(const ImageOptions& options) {
  Require(
      options.image_size == 0 && options.channels <= 1 && options.distortion == Distortion::kNone,
      "{}: data 'mnist1d' are signals of {} points, wanted image_size 0, image_channels 0 or 1 "
      "and distortion 'none', got {}, {} and '{}'",
      kWho, Mnist1d::kPoints, options.image_size, options.channels,
      NameOf("distortion", options.distortion, kDistortions));
  return std::make_shared<ImageData>(MakeMnist1d());
}

// Signals [points, 1] as curves from left to right, 4 at the top and -4 at the bottom.
Pictures Curves(const ImageData& data, const ImageBatch& batch) {
  constexpr int64_t kLevels = 24;
  constexpr float kTop = 4;
  const int64_t points = data.height();
  Pictures curves{
      .name = "batch",
      .count = std::ssize(batch.examples),
      .height = kLevels,
      .width = points,
      .pixels = std::vector<float>(batch.examples.size() * static_cast<size_t>(kLevels * points))};
  float* picture = curves.pixels.data();
  for (const int32_t example : batch.examples) {
    const float* signal = batch.images + example * batch.stride;
    const auto level = [&](int64_t point) {
      const float down = (kTop - signal[point]) / (2 * kTop) * static_cast<float>(kLevels);
      return static_cast<int64_t>(std::clamp(down, 0.0F, static_cast<float>(kLevels - 1)));
    };
    for (int64_t point = 0; point < points; ++point) {
      // From its own level to that of the point before.
      const auto [low, high] = std::minmax({level(point), level(std::max<int64_t>(point - 1, 0))});
      for (int64_t y = low; y <= high; ++y) picture[y * points + point] = 1;
    }
    picture += kLevels * points;
  }
  return curves;
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
  v.Choice("data", &data, kImageSources,
           "The images: drawn digits (\"glyphs\", \"coloured_glyphs\"), drawn signals of 40 points "
           "(\"mnist1d\"), or files of the data directory; \"default\" is \"idx\" if a data "
           "directory is given and \"glyphs\" otherwise. docs/tasks.md says which files.");
  csv.Visit(v);
  v.Choice("distortion", &distortion, kDistortions,
           "Makes another data set of the same images: bright and dark exchanged, a quarter of the "
           "brightness, noise on every pixel, or a fifth of the train split's labels drawn anew.");
  VisitSampling(v, &sampling);
}

RawImages LoadImages(ImageSource source, const std::string& directory, const CsvOptions& csv) {
  switch (source) {
    case ImageSource::kGlyphs:
      return GenerateImages();
    case ImageSource::kColouredGlyphs:
      return DrawColouredGlyphs();
    case ImageSource::kIdx:
      return ReadImageDirectory(directory);
    case ImageSource::kCifar10:
      return ReadCifar10(directory);
    case ImageSource::kCifar100:
      return ReadCifar100(directory);
    case ImageSource::kCsv:
      return ReadCsvImages(directory, csv);
    case ImageSource::kNpz:
      return ReadNpzImages(directory);
    default:
      Fail("{}: data '{}' are no images", kWho, SourceName(source));
  }
}

std::vector<ImageSource> SourcesIn(const std::string& directory) {
  std::vector<ImageSource> sources;
  const auto add = [&](ImageSource source, std::initializer_list<const char*> files) {
    if (std::ranges::any_of(
            files, [&](const char* file) { return !FindFileOrGzipped(directory, file).empty(); })) {
      sources.push_back(source);
    }
  };
  add(ImageSource::kIdx, {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"});
  if (HasCifar10(directory)) sources.push_back(ImageSource::kCifar10);
  if (HasCifar100(directory)) sources.push_back(ImageSource::kCifar100);
  add(ImageSource::kCsv, {"train.csv"});
  if (std::ranges::any_of(ListDirectory(directory),
                          [](const std::string& name) { return name.ends_with(".npz"); })) {
    sources.push_back(ImageSource::kNpz);
  }
  return sources;
}

std::shared_ptr<const ImageData> GetImages(const ImageOptions& options,
                                           const TaskResources& resources) {
  CheckOptions(kWho, options);
  const ImageSource source = ResolvedSource(options.data, resources);
  Require(source == ImageSource::kCsv || (options.csv.shape.empty() && options.csv.white == 255 &&
                                          options.csv.label_column == 0),
          "{}: csv_shape, csv_white and csv_label_column are for data 'csv', but it is '{}'", kWho,
          SourceName(source));
  const std::string directory = IsReadFromFiles(source) ? resources.UseDataDir() : "";
  Require(!IsReadFromFiles(source) || !directory.empty(),
          "{}: data '{}' is read from a directory ({})", kWho, SourceName(source),
          KeyWords("data_dir"));
  const std::string name = fmt::format(
      "{} {} {} {} {} {} {} {}", SourceName(source), options.image_size, options.channels,
      NameOf("distortion", options.distortion, kDistortions), ToString(options.csv.shape),
      options.csv.white, options.csv.label_column, directory);
  return resources.Get<ImageData>(name, [&]() -> std::shared_ptr<const ImageData> {
    if (source == ImageSource::kMnist1d) return LoadSignals(options);
    RawImages raw = LoadImages(source, directory, options.csv);
    if (IsReadFromFiles(source)) resources.NoteData(SourceName(source), ChecksumOf(raw));
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
                  .classes = data.classes(),
                  .normalizer_maximum = 1.5 * std::log(static_cast<double>(data.classes()))};
  parts.data = RowsInBatches(data, options.batch_size, options.sampling);
  return parts;
}

std::vector<Pictures> BatchPictures(const ImageData& data, const ImageBatch& batch) {
  if (data.holds_signals()) return {Curves(data, batch)};
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
