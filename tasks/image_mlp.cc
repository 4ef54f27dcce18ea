#include "tasks/image_mlp.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/options.h"
#include "tasks/image_mlp_kernel.h"
#include "tasks/image_mlp_reference.h"

namespace lopt {
namespace {

MlpShape MakeShape(const ImageMlpOptions& options, const ImageData& data) {
  MlpShape shape;
  shape.sizes.push_back(data.features());
  for (const int64_t size : options.hidden) {
    shape.sizes.push_back(size);
  }
  shape.sizes.push_back(data.classes());
  return shape;
}

TaskParts Parts(const ImageMlpOptions& options, const std::shared_ptr<const ImageData>& data) {
  TaskParts parts = ImageClassifierParts(options.images, *data);
  const ImageBatches images(options.augment, data);
  parts.config = images.config_layout();
  parts.model_state = images.model_state_layout();
  const MlpShape shape = MakeShape(options, *data);
  std::vector<std::pair<std::string, Shape>> tensors;
  for (int64_t l = 0; l < shape.layers(); ++l) {
    const std::string layer = fmt::format("mlp/linear_{}/", l);
    tensors.push_back({layer + "w", {shape.sizes[l], shape.sizes[l + 1]}});
    tensors.push_back({layer + "b", {shape.sizes[l + 1]}});
  }
  parts.params = Layout(std::move(tensors));
  // Of a layer: the product, the gradient of its weights and, behind the first, of its input.
  double weights = 0;
  for (int64_t l = 0; l < shape.layers(); ++l) {
    weights += (l == 0 ? 2.0 : 3.0) * static_cast<double>(shape.sizes[l] * shape.sizes[l + 1]);
  }
  parts.flops = 2 * weights * static_cast<double>(options.images.batch_size);
  return parts;
}

}  // namespace

void ImageMlpOptions::Visit(FieldVisitor& v) {
  images.Visit(v);
  v.Field("hidden", &hidden, Between(1, 100000), "Units of each hidden layer.");
  v.Choice("activation", &activation, kActivations, "The function between layers.");
  VisitAugment(v, &augment);
}

ImageMlp::ImageMlp(const ImageMlpOptions& options, std::shared_ptr<const ImageData> data,
                   Implementation implementation)
    : TaskFamily(Parts(CheckOptions("ImageMLP", options), data)),
      images_(options.augment, std::move(data)),
      shape_(MakeShape(options, images_.data())),
      activation_(options.activation),
      implementation_(implementation) {}

void ImageMlp::DoSample(Key key, std::span<float> config) const { images_.Sample(key, config); }

void ImageMlp::DoInit(std::span<const float>, Key key, std::span<float> params,
                      std::span<float> model_state) const {
  images_.Init(model_state);
  uint64_t tensor = 0;
  for (const LayoutEntry& entry : params_layout().entries()) {
    const std::span<float> values = params.subspan(entry.offset, entry.size);
    if (entry.shape.size() == 2) {
      TruncatedNormal(FoldIn(key, tensor++), -2, 2, values);
      const float scale = 1 / std::sqrt(static_cast<float>(entry.shape[0]));
      for (float& value : values) value *= scale;
    } else {
      std::fill(values.begin(), values.end(), 0.0f);
    }
  }
}

void ImageMlp::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  const int64_t size = params_layout().size();
  const int64_t batch = std::ssize(e.examples) / e.rows;
  const auto loss = implementation_ == Implementation::kFast ? MlpLoss : MlpLossReference;
  for (int64_t row = 0; row < e.rows; ++row) {
    const Workspace::Frame frame(scratch);
    MlpEvaluation evaluation{.activation = activation_,
                             .params = e.params.subspan(row * size, size),
                             .batch = images_.Batch(e, row, scratch)};
    if (!e.gradients.empty()) evaluation.gradient = e.gradients.subspan(row * size, size);
    const MlpResult result = loss(shape_, evaluation, scratch);
    e.losses[row] = result.loss;
    if (!e.aux.empty()) {
      e.aux[row] = static_cast<float>(result.correct) / static_cast<float>(batch);
    }
    evaluation.gradient = {};
    const auto loss_of = [&](const ImageBatch& one) {
      evaluation.batch = one;
      return loss(shape_, evaluation, scratch).loss;
    };
    images_.Learn(e, row, loss_of, scratch);
  }
}

std::vector<Pictures> ImageMlp::DoShow(const TaskEvaluation& e, Workspace& scratch) const {
  return BatchPictures(images_.data(), images_.Batch(e, 0, scratch));
}

}  // namespace lopt
