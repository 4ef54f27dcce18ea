#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lopt {

// Pictures of one size for people to look at: pixels [count, height, width, channels], 0 dark and 1
// bright; one channel is grey, three are red, green and blue.
struct Pictures {
  std::string name;                // what they show: "batch"
  int64_t count = 0;               // of pictures
  int64_t height = 0;              // in pixels
  int64_t width = 0;               // in pixels
  int64_t channels = 1;            // 1 or 3
  std::vector<float> pixels = {};  // [count, height, width, channels], C order
};

// One picture of bytes, [height, width, channels].
struct Bitmap {
  int64_t height = 0;                // in pixels
  int64_t width = 0;                 // in pixels
  int64_t channels = 1;              // 1 or 3
  std::vector<uint8_t> pixels = {};  // [height, width, channels], C order
};

// All of them side by side, `per_row` in a row, with a black frame of `padding` pixels around each
// (as torchvision's make_grid lays them out), every pixel `scale` times as large in both
// directions, the frame too. Values are cut to [0, 1] and rounded to 255 levels; one that is not a
// number is dark. Throws Error if there are none, if channels is not 1 or 3, or if the number of
// pixels is not what the sizes say.
Bitmap MakeGrid(const Pictures& pictures, int64_t per_row = 8, int64_t padding = 2,
                int64_t scale = 1);

// Throws Error unless MakeGrid can draw them.
void RequireDrawable(const Pictures& pictures);

// How many times as large ContactSheet draws small pictures, so that their longer side has 48
// pixels or a little less.
int64_t EnlargementOf(const Pictures& pictures);

// A grid of each, one above the other on black, in colour if one of them is. Small pictures are
// enlarged (EnlargementOf). Throws Error as MakeGrid does and if there are none.
Bitmap ContactSheet(const std::vector<Pictures>& pictures);

}  // namespace lopt
