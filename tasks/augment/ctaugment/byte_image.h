#pragma once

#include <cstdint>

namespace lopt {

// An image of 8-bit numbers, [height, width, channels] with 1 (grey) or 3 channels (red, green,
// blue): a view of memory that somebody else owns.
struct ByteImage {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 1;
  uint8_t* pixels = nullptr;

  int64_t size() const { return height * width * channels; }
  uint8_t* at(int64_t y, int64_t x) const { return pixels + (y * width + x) * channels; }
};

}  // namespace lopt
