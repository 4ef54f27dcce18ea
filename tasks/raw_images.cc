#include "lopt/tasks/raw_images.h"

#include <spdlog/spdlog.h>

#include <initializer_list>

#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/permutation.h"
#include "lopt/base/workspace.h"

namespace lopt {
namespace {

constexpr uint64_t kShuffleSeed = 3;

// Cuts rows [0, count) at these percentages.
void CutRows(int64_t count, std::initializer_list<int64_t> ends_percent,
             std::pair<int64_t, int64_t>* splits) {
  int64_t first = 0;
  for (const int64_t end : ends_percent) {
    const int64_t last = count * end / 100;
    *splits++ = {first, last};
    first = last;
  }
}

}  // namespace

void SplitOneSet(int64_t count, std::pair<int64_t, int64_t> splits[4]) {
  CutRows(count, {70, 80, 90, 100}, splits);
}

void SplitTrainAndTest(int64_t train_count, int64_t test_count,
                       std::pair<int64_t, int64_t> splits[4]) {
  CutRows(train_count, {80, 90, 100}, splits);
  splits[3] = {train_count, train_count + test_count};
}

RawImages JoinSets(const std::string& place, std::optional<RawImages> train,
                   std::optional<RawImages> test) {
  RawImages all = std::move(train ? *train : *test);
  Require(all.count >= 10, "{}: {} images are too few to be split, wanted at least 10", place,
          all.count);
  if (!train || !test) {
    SplitOneSet(all.count, all.splits);
    spdlog::info(
        "{} has only {} images: these {} are split 70/10/10/10 into train, inner_valid, "
        "outer_valid and test",
        place, train ? "training" : "test", all.count);
    return all;
  }
  Require(test->height == all.height && test->width == all.width && test->channels == all.channels,
          "{}: the test images are {} x {} x {}, but the training images are {} x {} x {}", place,
          test->height, test->width, test->channels, all.height, all.width, all.channels);
  SplitTrainAndTest(all.count, test->count, all.splits);
  all.count += test->count;
  all.pixels.insert(all.pixels.end(), test->pixels.begin(), test->pixels.end());
  all.labels.insert(all.labels.end(), test->labels.begin(), test->labels.end());
  return all;
}

void ShuffleRows(RawImages* images) {
  Workspace scratch;
  const Permutation order(KeyFromSeed(kShuffleSeed), images->count, scratch);
  const auto size = static_cast<int64_t>(images->pixels.size()) / images->count;
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  pixels.reserve(images->pixels.size());
  labels.reserve(images->labels.size());
  for (int64_t row = 0; row < images->count; ++row) {
    const int64_t from = order(row);
    const auto image = images->pixels.begin() + from * size;
    pixels.insert(pixels.end(), image, image + size);
    labels.push_back(images->labels[static_cast<size_t>(from)]);
  }
  images->pixels = std::move(pixels);
  images->labels = std::move(labels);
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

}  // namespace lopt
