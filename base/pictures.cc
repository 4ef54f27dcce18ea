#include "lopt/base/pictures.h"

#include <algorithm>
#include <cmath>

#include "lopt/base/error.h"

namespace lopt {
namespace {

constexpr int64_t kEnlargedSide = 48;

uint8_t GreyLevel(float value) {
  return std::isnan(value) ? 0
                           : static_cast<uint8_t>(std::lround(255 * std::clamp(value, 0.0f, 1.0f)));
}

}  // namespace

int64_t EnlargementOf(const Pictures& p) {
  return std::max<int64_t>(1, kEnlargedSide / std::max<int64_t>(1, std::max(p.height, p.width)));
}

void RequireDrawable(const Pictures& p) {
  Require(
      p.count >= 1 && p.height >= 1 && p.width >= 1 && (p.channels == 1 || p.channels == 3),
      "pictures '{}': {} of {} x {} with {} channels cannot be drawn; wanted one at least, of 1 "
      "or 3 channels",
      p.name, p.count, p.height, p.width, p.channels);
  Require(std::ssize(p.pixels) == p.count * p.height * p.width * p.channels,
          "pictures '{}': {} numbers for {} pictures of {} x {} x {}", p.name, p.pixels.size(),
          p.count, p.height, p.width, p.channels);
}

Bitmap MakeGrid(const Pictures& p, int64_t per_row, int64_t padding, int64_t scale) {
  RequireDrawable(p);
  const int64_t columns = std::min(per_row, p.count);
  const int64_t lines = (p.count + columns - 1) / columns;
  Bitmap grid{.height = scale * (lines * (p.height + padding) + padding),
              .width = scale * (columns * (p.width + padding) + padding),
              .channels = p.channels,
              .pixels = {}};
  grid.pixels.resize(static_cast<size_t>(grid.height * grid.width * grid.channels));
  for (int64_t i = 0; i < p.count; ++i) {
    const int64_t top = scale * (i / columns * (p.height + padding) + padding);
    const int64_t left = scale * (i % columns * (p.width + padding) + padding);
    const float* picture = p.pixels.data() + i * p.height * p.width * p.channels;
    for (int64_t y = 0; y < scale * p.height; ++y) {
      uint8_t* out = grid.pixels.data() + ((top + y) * grid.width + left) * p.channels;
      for (int64_t x = 0; x < scale * p.width; ++x) {
        const float* pixel = picture + (y / scale * p.width + x / scale) * p.channels;
        out = std::transform(pixel, pixel + p.channels, out, GreyLevel);
      }
    }
  }
  return grid;
}

Bitmap ContactSheet(const std::vector<Pictures>& pictures) {
  Require(!pictures.empty(), "there are no pictures to draw");
  std::vector<Bitmap> bitmaps;
  Bitmap all;
  for (const Pictures& p : pictures) {
    const Bitmap& bitmap = bitmaps.emplace_back(MakeGrid(p, 8, 2, EnlargementOf(p)));
    all.height += bitmap.height;
    all.width = std::max(all.width, bitmap.width);
    all.channels = std::max(all.channels, bitmap.channels);
  }
  all.pixels.resize(static_cast<size_t>(all.height * all.width * all.channels));
  uint8_t* line = all.pixels.data();
  for (const Bitmap& bitmap : bitmaps) {
    const uint8_t* in = bitmap.pixels.data();
    for (int64_t y = 0; y < bitmap.height; ++y, line += all.width * all.channels) {
      for (int64_t x = 0; x < bitmap.width; ++x, in += bitmap.channels) {
        for (int64_t c = 0; c < all.channels; ++c) {
          line[x * all.channels + c] = in[std::min(c, bitmap.channels - 1)];
        }
      }
    }
  }
  return all;
}

}  // namespace lopt
