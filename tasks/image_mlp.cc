#include "tasks/image_mlp.h"

#include <fmt/core.h>

#include "base/options.h"
#include "tasks/image_classifier.h"
#include "tasks/image_mlp_kernel.h"
#include "tasks/image_mlp_reference.h"
#include "tasks/network_init.h"

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
  InitNetwork(params_layout(), key, params);
}

void ImageMlp::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  const int64_t size = params_layout().size();
  const auto loss = implementation_ == Implementation::kFast ? MlpLoss : MlpLossReference;
  const auto loss_of_row = [&](int64_t row, const ImageBatch& batch, bool /*train*/,
                               std::span<float> gradient) {
    return loss(shape_,
                {.activation = activation_,
                 .params = e.params.subspan(row * size, size),
                 .batch = batch,
                 .gradient = gradient},
                scratch);
  };
  EvaluateClassifiers(images_, e, loss_of_row, scratch);
}

std::vector<Pictures> ImageMlp::DoShow(const TaskEvaluation& e, Workspace& scratch) const {
  return BatchPictures(images_.data(), images_.Batch(e, 0, scratch));
}

}  // namespace lopt
