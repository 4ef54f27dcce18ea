#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/key.h"
#include "tasks/image_data.h"
#include "tasks/image_mlp_problem.h"
#include "tasks/task_family.h"

namespace lopt {

struct ImageMlpOptions {
  int64_t image_size = 8;
  std::vector<int64_t> hidden = {32};
  std::string activation = "relu";
  int64_t batch_size = 128;
  std::string data = "default";
  std::string distortion = "none";
  void Visit(FieldVisitor& v);
};

// The key of an evaluation's batch, from the evaluation's own.
inline Key ImageBatchKey(Key key) { return FoldIn(key, 0); }

// A multilayer perceptron that classifies images: linear layers "mlp/linear_<l>/w" [in, out] and
// "mlp/linear_<l>/b" [out], the activation between them, loss = mean softmax cross-entropy, aux
// "accuracy" (the fraction of examples whose label has the largest logit). No config. Weights start
// from a normal distribution cut off at two standard deviations and divided by sqrt(in), biases at
// 0. A batch is `batch_size` rows of the split, drawn with replacement; `examples` are rows of
// the whole data set and may be any number. The normalizer cuts losses to [0, 1.5 ln(classes)].
class ImageMlp : public TaskFamily {
 public:
  // The plain implementation is the oracle of the fast one; they agree to rounding.
  enum class Implementation { kFast, kReference };

  // Throws Error if a size is below 1, the activation is unknown or the images have another size
  // than image_size x image_size.
  ImageMlp(const ImageMlpOptions& options, std::shared_ptr<const ImageData> data,
           Implementation implementation = Implementation::kFast);

  double Normalize(std::span<const float> config, double loss) const override;
  std::optional<double> NormalizerMaximum() const override;
  std::pair<int64_t, int64_t> ExampleRange(Split split) const override;

 private:
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  std::shared_ptr<const ImageData> data_;
  MlpShape shape_;
  int64_t batch_size_;
  Implementation implementation_;
};

}  // namespace lopt
