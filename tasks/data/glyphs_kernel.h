#pragma once

#include <cstdint>
#include <span>

namespace lopt {

// A straight piece of a stroke, in pixels: the centre of pixel [row, column] is x = column, y =
// row.
struct GlyphSegment {
  float from_x, from_y, to_x, to_y;
};

// How strokes are drawn.
struct GlyphPen {
  float radius;  // half the width of a stroke, in pixels
  float ink;     // brightness of a covered pixel
  float noise;   // standard deviation of the noise on every pixel
};

// Draws the image [Glyphs::kSide, Glyphs::kSide] of these segments. Ink covers a pixel fully up to
// `radius` - 1/2 from a segment and not at all from `radius` + 1/2. `words` [kSide * kSide] are
// random bits, one for the noise of each pixel. The same bits on every instruction set.
void DrawSegments(std::span<const GlyphSegment> segments, const GlyphPen& pen,
                  std::span<const uint32_t> words, uint8_t* pixels);

}  // namespace lopt
