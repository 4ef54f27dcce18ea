#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/tasks/task_family.h"

namespace lopt {

// Labelled images as they are stored.
template <class Value>
struct StoredImages {
  int64_t count = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 1;                        // 1 is grey, 3 are red, green and blue
  std::vector<Value> pixels = {};              // [count, height, width, channels]
  std::vector<uint8_t> labels = {};            // [count]
  std::pair<int64_t, int64_t> splits[4] = {};  // rows [first, last) of each Split
};
using RawImages = StoredImages<uint8_t>;  // 0 is black or background, 255 white or ink
using RawSignals = StoredImages<float>;   // numbers of any range

// How readers cut their rows into splits. Rows that are one set are, in their order, 70 % train, 10
// % inner_valid, 10 % outer_valid and 10 % test; of a training set and a test set the first is 80 %
// train, 10 % inner_valid and 10 % outer_valid, the second test.
void SplitOneSet(int64_t count, std::pair<int64_t, int64_t> splits[4]);
void SplitTrainAndTest(int64_t train_count, int64_t test_count,
                       std::pair<int64_t, int64_t> splits[4]);

// The two sets of a place that has at least one of them, split so. With one set the log says how it
// was cut. Throws Error that begins with `place` if sizes or channels differ, a set that is cut has
// fewer than 10 images, all labels are equal, or all pixels are. What few can mean is logged as a
// warning: labels that do not occur below the greatest, one label for nearly all images or nearly
// as many labels as images, no pixel above 63, a split without a label of which there are many,
// images that are there twice, and test images that are among the others.
RawImages JoinSets(const std::string& place, std::optional<RawImages> train,
                   std::optional<RawImages> test);

// Puts the rows of a set whose rows may be sorted by their labels into an order that is always the
// same.
void ShuffleRows(RawImages* images);

// Colour to grey, (19595 red + 38470 green + 7471 blue + 32768) / 65536 (the luma of ITU-R 601-2,
// rounded), or grey to three equal channels; 0 or the channels that there are: nothing. Throws
// Error on any other change.
void SetChannels(int64_t channels, RawImages* images);

}  // namespace lopt
