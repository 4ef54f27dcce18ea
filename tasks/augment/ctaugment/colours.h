#pragma once

#include <cstdint>

#include "lopt/base/workspace.h"
#include "lopt/tasks/augment/ctaugment/byte_image.h"

namespace lopt {

// Operations that change the values of pixels where they are, in place.

// Each channel stretched to 0 to 255; each channel's values spread evenly; 255 - value. The result
// is blended into the image, 0: the image, 1: the result.
void Autocontrast(double blend, const ByteImage& image);
void Equalize(double blend, const ByteImage& image);
void Invert(double blend, const ByteImage& image);
// The highest `bits` of every value, 1 to 8, stay.
void Posterize(int bits, const ByteImage& image);
// Values from `threshold` on become 255 - value.
void Solarize(int threshold, const ByteImage& image);

// The mean over the pixel and its neighbours in a square of 3 x 3, where the pixel counts 5 times,
// or over the ring of 16 pixels two steps away, blended as above. The border that has not all
// neighbours stays.
void Smooth(double blend, const ByteImage& image, Workspace& scratch);
void Blur(double blend, const ByteImage& image, Workspace& scratch);

// From a degenerate image (factor 0) to the image (1) and beyond, clipped: of black; of the mean
// grey; the grey image; the smoothed image.
void Brightness(double factor, const ByteImage& image, Workspace& scratch);
void Contrast(double factor, const ByteImage& image, Workspace& scratch);
void Color(double factor, const ByteImage& image, Workspace& scratch);
void Sharpness(double factor, const ByteImage& image, Workspace& scratch);

}  // namespace lopt
