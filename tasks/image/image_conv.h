#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/tasks/augment/augmentation.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/tasks/image/image_classifier.h"
#include "lopt/tasks/image/image_conv_problem.h"
#include "lopt/tasks/image/image_task.h"

namespace lopt {

inline constexpr Named<Pool> kPools[] = {
    {Pool::kNone, "none"}, {Pool::kMax, "max"}, {Pool::kAverage, "average"}};
inline constexpr Named<ConvHead> kConvHeads[] = {{ConvHead::kMean, "mean"},
                                                 {ConvHead::kFlatten, "flatten"}};

struct ImageConvOptions {
  ImageOptions images = {};
  std::vector<int64_t> channels = {16, 32};
  std::vector<int64_t> strides = {2, 1};
  std::vector<int64_t> kernel = {3, 3};
  Activation activation = Activation::kRelu;
  Pool pool = Pool::kNone;
  ConvHead head = ConvHead::kMean;
  Config augment = NoAugmentation();
  void Visit(FieldVisitor& v);
};

// A network of convolutions that classifies images [height, width, channels]: convolutions with
// padding "SAME" (SameWindow) "conv2_d/w" [kernel height, kernel width, in, out] and "conv2_d/b"
// [out], "conv2_d_1/w" and so on, each with the activation and the pooling behind it, then what the
// head takes of the outputs and a linear layer "linear/w", "linear/b". Initial params are those of
// InitNetwork, config and model state those of the augmentation; the rest is that of every image
// classifier (image_task.h).
class ImageConv : public ImageClassifier {
 public:
  // Throws Error as CheckOptions and ImageClassifierParts do, and if there are no channels, no or
  // more strides than channels, or not two sizes of the kernel.
  ImageConv(const ImageConvOptions& options, const std::shared_ptr<const ImageData>& data);

  const ConvShape& shape() const { return shape_; }
  Activation activation() const { return activation_; }

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  ConvShape shape_;
  Activation activation_;
};

}  // namespace lopt
