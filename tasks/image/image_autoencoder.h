#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/tasks/image/image_mlp_problem.h"
#include "lopt/tasks/image/image_task.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

struct ImageAutoencoderOptions {
  ImageOptions images = {};
  std::vector<int64_t> hidden = {32, 8, 32};
  Activation activation = Activation::kRelu;
  void Visit(FieldVisitor& v);
};

// A multilayer perceptron that learns to give back images: linear layers named as those of
// ImageMLP with as many outputs as inputs, the activation between them, loss = mean over examples
// and numbers of (x - sigmoid(output))^2, cut to [0, 1]. No config, no aux; it shows its batch and
// the reconstruction. Initial params are those of InitNetwork.
class ImageAutoencoder : public TaskFamily {
 public:
  // Throws Error as CheckOptions and ImageClassifierParts do, and if the data are signals.
  ImageAutoencoder(const ImageAutoencoderOptions& options, std::shared_ptr<const ImageData> data);

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
  std::vector<Pictures> DoShow(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  MlpEvaluation EvaluationOf(const TaskEvaluation& evaluation, int64_t row) const;

  std::shared_ptr<const ImageData> data_;
  MlpShape shape_;
  Activation activation_;
};

}  // namespace lopt
