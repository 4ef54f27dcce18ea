#pragma once

#include "lopt/tasks/data/raw_images.h"

namespace lopt {

// Glyphs::kCount drawn digits (glyphs.h) in a colour on a background of another colour, 28 x 28 x
// 3: the ink is 96 to 160 levels brighter than the background in every channel. Cut at
// Glyphs::kSplits.
RawImages DrawColouredGlyphs();

}  // namespace lopt
