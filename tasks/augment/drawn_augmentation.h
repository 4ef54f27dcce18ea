#pragma once

#include <cstdint>
#include <span>

#include "lopt/base/fields.h"
#include "lopt/tasks/augment/augmentation.h"

namespace lopt {

struct DrawnAugmentationOptions {
  double rotation = 15;
  double scale = 1.2;
  double shear = 0.2;
  double translation = 0.1;
  double stroke = 0.5;
  double contrast = 1.25;
  double brightness = 0.1;
  double permute = 0;
  void Visit(FieldVisitor& v);
};

// Makes a data set of its own for every task: numbers drawn with the task, the same for all its
// images, batches and splits. Its config, in the order in which it acts:
// - "augment/stroke" s: each pixel x becomes x + |s| (y - x), y the largest of it and its 8
//   neighbours, for negative s the smallest: bright strokes are thicker or thinner.
// - "augment/affine" A [2, 3]: the pixel at (x, y) becomes what is at A (x, y, 1), bilinear, 0
//   outside; coordinates are in pixels from the middle of the image.
// - "augment/contrast" c, "augment/brightness" b: c (x - 1/2) + 1/2 + b, cut to [0, 1].
// - "augment/permutation" [height * width], only where permute > 0: where each pixel goes.
class DrawnAugmentation : public Augmentation {
 public:
  // Throws Error as CheckOptions does.
  DrawnAugmentation(const DrawnAugmentationOptions& options, const ImageExtent& extent);

  void Sample(Key key, std::span<float> config) const override;
  bool Changes(const AugmentedRow&) const override { return true; }
  void Augment(const AugmentedRow& row, const ImageBatch& batch, float* out,
               Workspace& scratch) const override;

 private:
  DrawnAugmentationOptions options_;
  ImageExtent extent_;
};

}  // namespace lopt
