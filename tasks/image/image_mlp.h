#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/tasks/augment/augmentation.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/tasks/image/image_classifier.h"
#include "lopt/tasks/image/image_mlp_problem.h"
#include "lopt/tasks/image/image_task.h"

namespace lopt {

struct ImageMlpOptions {
  ImageOptions images = {};
  std::vector<int64_t> hidden = {32};
  Activation activation = Activation::kRelu;
  Norm norm = Norm::kNone;
  Config augment = NoAugmentation();
  void Visit(FieldVisitor& v);
};

// A multilayer perceptron that classifies images: linear layers "mlp/linear_<l>/w" [in, out] and
// "mlp/linear_<l>/b" [out], between them the norm, if any, and the activation, loss = mean softmax
// cross-entropy, aux "accuracy" (the fraction of examples whose label has the largest logit). The
// config is that of its augmentation, the model state the augmentation's and the norm's running
// statistics (MlpStatistics), which start at mean 0 and variance 1. Initial params are those of
// InitNetwork. The rest is that of every image classifier (image_task.h).
class ImageMlp : public ImageClassifier {
 public:
  // Throws Error as CheckOptions and ImageClassifierParts do.
  ImageMlp(const ImageMlpOptions& options, const std::shared_ptr<const ImageData>& data);

  const MlpShape& shape() const { return shape_; }
  Activation activation() const { return activation_; }

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  MlpShape shape_;
  Activation activation_;
};

}  // namespace lopt
