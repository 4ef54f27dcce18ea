#pragma once

#include <cstdint>

#include "lopt/base/workspace.h"
#include "lopt/tasks/augment/augmentation.h"
#include "lopt/tasks/image/image_batch.h"

namespace lopt {

// What a drawn augmentation does to every image: first the stroke (drawn_augmentation.h), then
// number f of the result is
//   clip(contrast (sum over k < 4 of weights[k stride + f] image[inputs[k stride + f]]) + shift)
// to [0, 1]. Both tables are [4, stride], whatever behind the image's numbers.
struct DrawnChange {
  ImageExtent extent;
  float stroke = 0;
  const int32_t* inputs = nullptr;
  const float* weights = nullptr;
  float contrast = 1;
  float shift = 0;
};

// Changes the images of a batch; `out` is [images, stride], 64-byte aligned, its padding zero. On
// the instruction set that base/isa.h names.
void ApplyDrawnChange(const DrawnChange& change, const ImageBatch& batch, float* out,
                      Workspace& scratch);

}  // namespace lopt
