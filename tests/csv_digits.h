#pragma once

#include <fmt/format.h>

#include <string>

#include "lopt/base/file.h"

namespace lopt {

// Writes a train.csv of 60 images of 2 x 2 with 5 labels into the directory; another `kind` is
// other pixels.
inline void WriteCsvDigits(const std::string& directory, int kind) {
  std::string text;
  for (int row = 0; row < 60; ++row) {
    for (int pixel = 0; pixel < 4; ++pixel) {
      text += fmt::format("{},", (row * 37 + pixel * 91 + kind * row) % 256);
    }
    text += fmt::format("{}\n", row % 5);
  }
  WriteTextFile(directory + "/train.csv", text);
}

}  // namespace lopt
