#pragma once

#include <cstdint>
#include <span>

#include "lopt/tasks/data/glyphs_kernel.h"

namespace lopt {

// DrawSegments (tasks/data/glyphs_kernel.h) in plain loops over segments, rows and columns.
void ReferenceDrawSegments(std::span<const GlyphSegment> segments, const GlyphPen& pen,
                           std::span<const uint32_t> words, uint8_t* pixels);

}  // namespace lopt
