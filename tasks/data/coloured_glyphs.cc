#include "lopt/tasks/data/coloured_glyphs.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lopt/base/key.h"
#include "lopt/tasks/data/glyphs.h"

namespace lopt {
namespace {

constexpr uint64_t kColouredGlyphsSeed = 2;

struct Colours {
  std::array<int32_t, 3> background;
  std::array<int32_t, 3> ink;
};

// The background is dark and the ink 96 to 160 levels brighter in every channel: with either the
// brighter one small networks would not learn within hundreds of steps.
Colours DrawColours(Key key) {
  Colours colours;
  std::array<int32_t, 3> apart;
  Randint(FoldIn(key, 0), 0, 96, colours.background);
  Randint(FoldIn(key, 1), 96, 161, apart);
  for (size_t c = 0; c < 3; ++c) colours.ink[c] = colours.background[c] + apart[c];
  return colours;
}

}  // namespace

RawImages DrawColouredGlyphs() {
  const Key key = KeyFromSeed(kColouredGlyphsSeed);
  Glyphs glyphs = DrawGlyphs(FoldIn(key, 0), Glyphs::kCount);
  RawImages all{.count = Glyphs::kCount,
                .height = Glyphs::kSide,
                .width = Glyphs::kSide,
                .channels = 3,
                .pixels = std::vector<uint8_t>(3 * glyphs.pixels.size()),
                .labels = std::move(glyphs.labels),
                .splits = {}};
  const int64_t pixels = Glyphs::kSide * Glyphs::kSide;
  const uint8_t* cover = glyphs.pixels.data();
  uint8_t* out = all.pixels.data();
  for (int64_t image = 0; image < all.count; ++image) {
    const Colours colours = DrawColours(FoldIn(FoldIn(key, 1), static_cast<uint64_t>(image)));
    for (int64_t pixel = 0; pixel < pixels; ++pixel, ++cover) {
      for (size_t c = 0; c < 3; ++c) {
        const int32_t mixed =
            colours.background[c] * (255 - int32_t{*cover}) + colours.ink[c] * int32_t{*cover};
        *out++ = static_cast<uint8_t>((2 * mixed + 255) / 510);
      }
    }
  }
  std::ranges::copy(Glyphs::kSplits, all.splits);
  return all;
}

}  // namespace lopt
