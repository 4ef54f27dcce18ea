#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lopt/base/pictures.h"

namespace lopt {

// n points for TensorBoard's projector.
struct Projection {
  std::string name;                  // of letters, digits and spaces
  int64_t points = 0;                // n
  std::span<const float> features;   // [n, F]
  std::string labels;                // a line of names and n of values, separated by tabs
  std::optional<Pictures> pictures;  // one of each point
};

// Writes the directory that `tensorboard --logdir` and the projector read: tensors.tsv,
// metadata.tsv, projector_config.pbtxt, and sprite.png if there are pictures. Makes it, or replaces
// these files in it. Throws Error if the pictures are more than the projector draws or a file
// cannot be written.
void WriteProjection(const std::string& directory, const Projection& projection);

}  // namespace lopt
