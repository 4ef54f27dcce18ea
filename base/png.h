#pragma once

#include <string>

#include "lopt/base/pictures.h"

namespace lopt {

// The bytes of a PNG file of a picture with 1 (grey) or 3 channels (RGB), 8 bits each. Throws Error
// that says what libpng found wrong.
std::string EncodePng(const Bitmap& bitmap);

}  // namespace lopt
