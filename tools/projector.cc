#include "lopt/tools/projector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/png.h"

namespace lopt {
namespace {

// The points' pictures side by side, as many in a row as there are rows, and at least as many.
Bitmap Sprite(const Pictures& pictures) {
  constexpr int64_t kLargestSide = 8192;  // what the projector loads
  const auto columns =
      static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(pictures.count))));
  const int64_t side = columns * std::max(pictures.width, pictures.height);
  Require(
      side <= kLargestSide,
      "--projector: the pictures of {} rows, {} x {} each, make one of {} pixels a side, wanted "
      "{} at most; --rows takes fewer",
      pictures.count, pictures.height, pictures.width, side, kLargestSide);
  return MakeGrid(pictures, columns, 0);
}

std::string TensorsTsv(const Projection& p) {
  const int64_t size = std::ssize(p.features) / p.points;
  std::string text;
  for (int64_t i = 0; i < std::ssize(p.features); ++i) {
    text += fmt::format("{:.9g}{}", p.features[i], (i + 1) % size == 0 ? '\n' : '\t');
  }
  return text;
}

std::string ProjectorConfig(const Projection& p) {
  std::string text = fmt::format(
      "embeddings {{\n"
      "  tensor_name: \"{}\"\n"
      "  tensor_shape: {}\n"
      "  tensor_shape: {}\n"
      "  tensor_path: \"tensors.tsv\"\n"
      "  metadata_path: \"metadata.tsv\"\n",
      p.name, p.points, std::ssize(p.features) / p.points);
  if (p.pictures) {
    text += fmt::format(
        "  sprite {{\n"
        "    image_path: \"sprite.png\"\n"
        "    single_image_dim: {}\n"
        "    single_image_dim: {}\n"
        "  }}\n",
        p.pictures->width, p.pictures->height);
  }
  return text + "}\n";
}

}  // namespace

void WriteProjection(const std::string& directory, const Projection& projection) {
  std::optional<Bitmap> sprite;
  if (projection.pictures) sprite = Sprite(*projection.pictures);
  MakeDirectories(directory);
  WriteTextFile(directory + "/tensors.tsv", TensorsTsv(projection));
  WriteTextFile(directory + "/metadata.tsv", projection.labels);
  if (sprite) WriteTextFile(directory + "/sprite.png", EncodePng(*sprite));
  WriteTextFile(directory + "/projector_config.pbtxt", ProjectorConfig(projection));
}

}  // namespace lopt
