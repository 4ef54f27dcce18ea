#include "lopt/tasks/data/raw_images.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/permutation.h"
#include "lopt/base/workspace.h"

namespace lopt {
namespace {

constexpr uint64_t kShuffleSeed = 3;
// From so many images on, more labels than a tenth of them are too many.
constexpr int64_t kManyImages = 100;
// Of so many images of a label a split has one.
constexpr int64_t kExpected = 20;
// Where no pixel is brighter, others than bytes from 0 to 255 may be meant.
constexpr uint8_t kDim = 64;

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

namespace {

// "2, 5 and 7 more": the first numbers of a list that may be long.
std::string FirstOf(const std::vector<int>& numbers) {
  constexpr size_t kShown = 5;
  const size_t shown = std::min(numbers.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(std::span(numbers).first(shown), ", "));
  if (numbers.size() > shown) text += fmt::format(" and {} more", numbers.size() - shown);
  return text;
}

// Labels count classes from 0. What nobody can mean is an error, what few mean a warning.
void CheckLabels(const std::string& place, const RawImages& images) {
  int64_t counts[256] = {};
  for (const uint8_t label : images.labels) ++counts[label];
  const int classes = 1 + *std::ranges::max_element(images.labels);
  std::vector<int> missing;
  for (int label = 0; label < classes; ++label) {
    if (counts[label] == 0) missing.push_back(label);
  }
  const int found = classes - static_cast<int>(missing.size());
  const auto most = std::ranges::max_element(counts);
  const auto label_of_most = static_cast<int>(most - std::begin(counts));
  Require(found > 1, "{}: all {} images have the label {}; wanted are images of at least 2 classes",
          place, images.count, classes - 1);
  if (found > 1 && *most > images.count / 10 * 9) {
    spdlog::warn("{}: {} of the {} images have the label {}: are these the labels?", place, *most,
                 images.count, label_of_most);
  } else if (images.count >= kManyImages && found > images.count / 10) {
    spdlog::warn("{}: {} images have {} different labels: are these the labels?", place,
                 images.count, found);
  }
  if (missing.empty()) return;
  spdlog::warn(
      "{}: labels are wanted from 0 on without a gap, but no image has the label {}: the task has "
      "{} classes, of which {} occur",
      place, FirstOf(missing), classes, found);
}

// Pixels are 0 to 255.
void CheckPixels(const std::string& place, const RawImages& images) {
  const auto [least, greatest] = std::ranges::minmax(images.pixels);
  Require(least < greatest, "{}: all pixels of all images are {}", place, least);
  if (greatest < kDim) {
    spdlog::warn("{0}: the greatest pixel is {1}, where 255 is white: are they scaled to [0, {1}]?",
                 place, greatest);
  }
}

// Of each split, what all others lead to expect.
void CheckSplits(const std::string& place, const RawImages& images) {
  int64_t totals[256] = {};
  for (const uint8_t label : images.labels) ++totals[label];
  for (const Split split : kSplits) {
    const auto [first, last] = images.splits[static_cast<size_t>(split)];
    int64_t counts[256] = {};
    for (int64_t row = first; row < last; ++row) ++counts[images.labels[static_cast<size_t>(row)]];
    std::vector<int> missing;
    for (int label = 0; label < 256; ++label) {
      const int64_t expected = totals[label] * (last - first) / images.count;
      if (expected >= kExpected && counts[label] == 0) missing.push_back(label);
    }
    if (missing.empty()) continue;
    spdlog::warn(
        "{}: the split {} has no image with the label {}, which others have: are the images sorted "
        "by their labels?",
        place, ToString(split), FirstOf(missing));
  }
}

// Images that are there more than once.
void CheckRepeats(const std::string& place, const RawImages& images) {
  if (images.count < kManyImages) return;  // too few to say
  const size_t size = images.pixels.size() / images.labels.size();
  const auto hash = [&](int64_t row) {
    return std::hash<std::string_view>()(
        {reinterpret_cast<const char*>(images.pixels.data()) + static_cast<size_t>(row) * size,
         size});
  };
  const auto [test, end] = images.splits[static_cast<size_t>(Split::kTest)];
  std::vector<size_t> others;
  for (int64_t row = 0; row < test; ++row) others.push_back(hash(row));
  std::ranges::sort(others);
  int64_t known = 0;
  for (int64_t row = test; row < end; ++row) {
    known += std::ranges::binary_search(others, hash(row)) ? 1 : 0;
  }
  const auto different = std::unique(others.begin(), others.end()) - others.begin();
  if (different <= test / 2) {
    spdlog::warn("{}: of the {} images that are no test images only {} are different", place, test,
                 different);
  }
  if (known > (end - test) / 10) {
    spdlog::warn("{}: {} of the {} test images are also among the others", place, known,
                 end - test);
  }
}

RawImages Joined(const std::string& place, std::optional<RawImages> train,
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

}  // namespace

RawImages JoinSets(const std::string& place, std::optional<RawImages> train,
                   std::optional<RawImages> test) {
  RawImages all = Joined(place, std::move(train), std::move(test));
  CheckLabels(place, all);
  CheckPixels(place, all);
  CheckSplits(place, all);
  CheckRepeats(place, all);
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
