#pragma once

#include <cstdint>
#include <vector>

#include "base/key.h"
#include "tasks/raw_images.h"

namespace lopt {

// Drawn digits: ten classes of strokes under a random affine distortion, with jitter of the
// strokes, random width and ink, and noise. A data set that needs no files.
struct Glyphs {
  static constexpr int64_t kSide = 28;
  static constexpr int64_t kClasses = 10;
  std::vector<uint8_t> pixels;  // [count, kSide, kSide]; 0 is background
  std::vector<uint8_t> labels;  // [count], the digit
};

// Image i depends on `key` and i alone, so a larger count only adds images. Runs in parallel over
// images on the pool around it.
Glyphs DrawGlyphs(Key key, int64_t count);

// 10,000 of them, always the same, cut by SplitOneSet.
RawImages GenerateImages();

}  // namespace lopt
