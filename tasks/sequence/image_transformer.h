#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lopt/base/fields.h"
#include "lopt/tasks/augment/augmentation.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/tasks/image/image_classifier.h"
#include "lopt/tasks/image/image_task.h"
#include "lopt/tasks/sequence/transformer.h"

namespace lopt {

struct ImageTransformerOptions {
  ImageOptions images = {};
  int64_t patch = 2;
  TransformerOptions model = {};
  Config augment = NoAugmentation();
  void Visit(FieldVisitor& v);
};

// A vision transformer (Dosovitskiy et al. 2021; TransformerShape) that classifies images. It maps
// patches linearly, adds embeddings of their places, lets each patch attend to all, and reads the
// mean over patches; there is no class token. InitNetworkOnEmbeddings draws the params. Config and
// model state are the augmentation's; the rest is that of every image classifier (image_task.h).
class ImageTransformer : public ImageClassifier {
 public:
  // Throws Error as CheckOptions, CheckTransformer and ImageClassifierParts do, and if the images'
  // height or width is no multiple of the patch, or there are more than kMostPlaces patches.
  ImageTransformer(const ImageTransformerOptions& options,
                   const std::shared_ptr<const ImageData>& data);

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  TransformerShape shape_;
  int64_t patch_;
  double embedding_std_;
};

}  // namespace lopt
