#pragma once

#include <cstdint>

#include "lopt/base/workspace.h"
#include "lopt/tasks/augment/ctaugment/byte_image.h"

namespace lopt {

// Operations that move pixels, in place. Pixels from outside of the image are 0.

// Counter-clockwise around the middle, the nearest pixel taken.
void Rotate(int degrees, const ByteImage& image, Workspace& scratch);
// The pixel at (x, y) becomes the one nearest (x + by y, y), or (x, y + by x).
void ShearX(double by, const ByteImage& image, Workspace& scratch);
void ShearY(double by, const ByteImage& image, Workspace& scratch);
// The pixel at (x, y) becomes the one nearest (x + by_x, y + by_y).
void Translate(double by_x, double by_y, const ByteImage& image, Workspace& scratch);

enum class ResizeMethod { kLanczos, kBicubic, kBilinear, kBox, kHamming, kNearest };
// The part of the image without the fraction `border` (under 1/2) on each side, to the nearest
// pixel, stretched to the whole image.
void CropAndResize(double border, ResizeMethod method, const ByteImage& image, Workspace& scratch);

// The pixels of rows and columns [centre - size / 2, centre + size / 2) become 127.
void Cutout(int64_t centre_x, int64_t centre_y, int64_t size, const ByteImage& image);

}  // namespace lopt
