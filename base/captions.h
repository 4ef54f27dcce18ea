#pragma once

#include <array>
#include <span>
#include <string>

#include "lopt/base/pictures.h"

namespace lopt {

// A line of text below a picture.
struct Caption {
  std::string text;             // digits, '>' and spaces
  std::array<float, 3> colour;  // red, green and blue in [0, 1]
};

// The pictures in colour, each with its caption on black below. Small pictures are enlarged as
// ContactSheet does. Throws Error unless there is a caption for each, of such characters, and the
// pictures are such as MakeGrid draws.
Pictures WithCaptions(const Pictures& pictures, std::span<const Caption> captions);

}  // namespace lopt
