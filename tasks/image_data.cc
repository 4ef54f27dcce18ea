#include "tasks/image_data.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/key.h"
#include "tasks/glyphs.h"
#include "tasks/idx.h"

namespace lopt {
namespace {

constexpr uint64_t kGlyphsSeed = 1;
constexpr int64_t kGlyphsCount = 10000;
constexpr int64_t kFloatsPerLine = 16;  // 64 bytes

// The file of this name, or the same with .gz; empty if there is neither.
std::string FindFile(const std::string& directory, const std::string& name) {
  const std::string path = (std::filesystem::path(directory) / name).string();
  for (const std::string& candidate : {path, path + ".gz"}) {
    if (std::filesystem::exists(candidate)) return candidate;
  }
  return {};
}

// The images and labels of "train" or "t10k", without splits; nothing if neither file is there.
std::optional<RawImages> ReadPair(const std::string& directory, const std::string& prefix) {
  const std::string image_name = prefix + "-images-idx3-ubyte";
  const std::string label_name = prefix + "-labels-idx1-ubyte";
  const std::string image_path = FindFile(directory, image_name);
  const std::string label_path = FindFile(directory, label_name);
  if (image_path.empty() && label_path.empty()) return std::nullopt;
  Require(!image_path.empty(), "{}: there are labels, but no images: looked for {}[.gz] in {}",
          label_path, image_name, directory);
  Require(!label_path.empty(), "{}: there are images, but no labels: looked for {}[.gz] in {}",
          image_path, label_name, directory);
  IdxFile images = ReadIdx(image_path, 3);
  IdxFile labels = ReadIdx(label_path, 1);
  Require(images.shape[0] == labels.shape[0], "{}: {} labels for the {} images of {}", label_path,
          labels.shape[0], images.shape[0], image_path);
  Require(images.shape[0] >= 10 && images.shape[1] >= 1 && images.shape[2] >= 1,
          "{}: holds images of shape {}, wanted at least 10 of at least 1 x 1", image_path,
          ToString(images.shape));
  return RawImages{.count = images.shape[0],
                   .height = images.shape[1],
                   .width = images.shape[2],
                   .pixels = std::move(images.values),
                   .labels = std::move(labels.values),
                   .splits = {}};
}

// Splits the first `count` rows at these percentages, one split after the other.
void SplitRows(int64_t count, std::initializer_list<int64_t> ends_percent, RawImages* images) {
  int64_t first = 0;
  size_t split = 0;
  for (const int64_t end : ends_percent) {
    const int64_t last = count * end / 100;
    images->splits[split++] = {first, last};
    first = last;
  }
}

// Where an output pixel lies between input pixels along one axis.
struct Tap {
  int64_t low, high;
  float fraction;
};

// Of `size` output pixels over `input` ones.
std::vector<Tap> ResizeTaps(int64_t input, int64_t size) {
  std::vector<Tap> taps;
  for (int64_t i = 0; i < size; ++i) {
    const double at =
        (static_cast<double>(i) + 0.5) * static_cast<double>(input) / static_cast<double>(size) -
        0.5;
    const auto low = static_cast<int64_t>(std::floor(at));
    taps.push_back({std::clamp<int64_t>(low, 0, input - 1),
                    std::clamp<int64_t>(low + 1, 0, input - 1),
                    static_cast<float>(at - std::floor(at))});
  }
  return taps;
}

int64_t ResizedTo(int64_t size, int64_t stored) {
  Require(size >= 0, "Images cannot be resized to {} x {}", size, size);
  return size == 0 ? stored : size;
}

}  // namespace

RawImages ReadImageDirectory(const std::string& directory) {
  std::optional<RawImages> train = ReadPair(directory, "train");
  std::optional<RawImages> test = ReadPair(directory, "t10k");
  Require(train || test,
          "There are no images in {}: looked for train-images-idx3-ubyte[.gz] with "
          "train-labels-idx1-ubyte[.gz] and for t10k-images-idx3-ubyte[.gz] with "
          "t10k-labels-idx1-ubyte[.gz]",
          directory);
  if (!train || !test) {
    RawImages all = std::move(train ? *train : *test);
    SplitRows(all.count, {70, 80, 90, 100}, &all);
    spdlog::info(
        "{} has only the {} pair of files: its {} images are split 70/10/10/10 into train, "
        "inner_valid, outer_valid and test",
        directory, train ? "train" : "t10k", all.count);
    return all;
  }
  Require(train->height == test->height && train->width == test->width,
          "The t10k images of {} are {} x {}, but the train images are {} x {}", directory,
          test->height, test->width, train->height, train->width);
  RawImages all = std::move(*train);
  SplitRows(all.count, {80, 90, 100}, &all);
  all.splits[3] = {all.count, all.count + test->count};
  all.count += test->count;
  all.pixels.insert(all.pixels.end(), test->pixels.begin(), test->pixels.end());
  all.labels.insert(all.labels.end(), test->labels.begin(), test->labels.end());
  return all;
}

RawImages GenerateImages() {
  Glyphs glyphs = DrawGlyphs(KeyFromSeed(kGlyphsSeed), kGlyphsCount);
  RawImages all{.count = kGlyphsCount,
                .height = Glyphs::kSide,
                .width = Glyphs::kSide,
                .pixels = std::move(glyphs.pixels),
                .labels = std::move(glyphs.labels),
                .splits = {}};
  SplitRows(all.count, {70, 80, 90, 100}, &all);
  return all;
}

void SetChannels(int64_t channels, RawImages* images) {
  const int64_t stored = images->channels;
  if (channels == 0 || channels == stored) return;
  Require((channels == 1 && stored == 3) || (channels == 3 && stored == 1),
          "Images of {} channels cannot be turned into images of {}: wanted 0 (as stored), {}",
          stored, channels,
          stored == 1 || stored == 3 ? "1 (grey) or 3 (colour)" : std::to_string(stored));
  const size_t pixels = images->pixels.size() / static_cast<size_t>(stored);
  std::vector<uint8_t> turned;
  turned.reserve(pixels * static_cast<size_t>(channels));
  for (size_t i = 0; i < pixels; ++i) {
    if (channels == 1) {
      const uint8_t* rgb = &images->pixels[3 * i];
      turned.push_back(
          static_cast<uint8_t>((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 0x8000) >> 16));
    } else {
      turned.insert(turned.end(), 3, images->pixels[i]);
    }
  }
  images->channels = channels;
  images->pixels = std::move(turned);
}

ImageData::ImageData(const RawImages& raw, int64_t size)
    : height_(ResizedTo(size, raw.height)),
      width_(ResizedTo(size, raw.width)),
      channels_(raw.channels),
      stride_((features() + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine),
      classes_(1 + *std::max_element(raw.labels.begin(), raw.labels.end())),
      labels_(raw.labels),
      images_(new (std::align_val_t{64}) float[static_cast<size_t>(raw.count * stride_)]) {
  std::copy(std::begin(raw.splits), std::end(raw.splits), splits_);
  std::vector<Tap> columns = ResizeTaps(raw.width, width_);
  for (Tap& x : columns) {
    x.low *= channels_;
    x.high *= channels_;
  }
  const std::vector<Tap> lines = ResizeTaps(raw.height, height_);
  const int64_t line = raw.width * channels_;
  for (int64_t image = 0; image < raw.count; ++image) {
    const uint8_t* in = raw.pixels.data() + image * raw.height * line;
    float* out = images_.get() + image * stride_;
    std::fill(out + features(), out + stride_, 0.0f);
    for (const Tap& y : lines) {
      const uint8_t* low = in + y.low * line;
      const uint8_t* high = in + y.high * line;
      for (const Tap& x : columns) {
        for (int64_t c = 0; c < channels_; ++c) {
          const float top = (1 - x.fraction) * low[x.low + c] + x.fraction * low[x.high + c];
          const float bottom = (1 - x.fraction) * high[x.low + c] + x.fraction * high[x.high + c];
          *out++ = ((1 - y.fraction) * top + y.fraction * bottom) / 255.0f;
        }
      }
    }
  }
}

}  // namespace lopt
