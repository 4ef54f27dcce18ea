#pragma once

#include <array>
#include <cstdint>
#include <span>
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

// A line of text below a picture.
struct Caption {
  std::string text;             // digits, '>' and spaces
  std::array<float, 3> colour;  // red, green and blue in [0, 1]
};

// The pictures in colour, each with its caption on black below. Small pictures are enlarged as
// ContactSheet does. Throws Error unless there is a caption for each, of such characters, and the
// pictures are such as MakeGrid draws.
Pictures WithCaptions(const Pictures& pictures, std::span<const Caption> captions);

// All of them side by side, `per_row` in a row, with a black frame of `padding` pixels around each
// (as torchvision's make_grid lays them out), every pixel `scale` times as large in both
// directions, the frame too. Values are cut to [0, 1] and rounded to 255 levels; one that is not a
// number is dark. Throws Error if there are none, if channels is not 1 or 3, or if the number of
// pixels is not what the sizes say.
Bitmap MakeGrid(const Pictures& pictures, int64_t per_row = 8, int64_t padding = 2,
                int64_t scale = 1);

// A grid of each, one above the other on black, in colour if one of them is. Small pictures are
// enlarged until their longer side has 48 pixels or a little less. Throws Error as MakeGrid does
// and if there are none.
Bitmap ContactSheet(const std::vector<Pictures>& pictures);

}  // namespace lopt
