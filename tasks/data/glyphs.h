#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/tasks/data/raw_images.h"

namespace lopt {

// Drawn digits: ten classes of strokes under a random affine distortion, with jitter of the
// strokes, random width and ink, and noise. A data set that needs no files.
struct Glyphs {
  static constexpr int64_t kSide = 28;
  static constexpr int64_t kClasses = 10;
  // Of a data set: 9,000 images to train and choose with, 10,000 test images.
  static constexpr std::pair<int64_t, int64_t> kSplits[4] = {
      {0, 7000}, {7000, 8000}, {8000, 9000}, {9000, 19000}};
  static constexpr int64_t kCount = kSplits[3].second;
  std::vector<uint8_t> pixels;  // [count, kSide, kSide]; 0 is background
  std::vector<uint8_t> labels;  // [count], the digit
};

// Image i depends on `key` and i alone, so a larger count only adds images. Runs in parallel over
// images on the pool around it.
Glyphs DrawGlyphs(Key key, int64_t count);

// Glyphs::kCount of them, always the same, cut at Glyphs::kSplits.
RawImages GenerateImages();

}  // namespace lopt
