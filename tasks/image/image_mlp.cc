#include "lopt/tasks/image/image_mlp.h"

#include <utility>

#include "lopt/base/options.h"
#include "lopt/tasks/image/image_mlp_kernel.h"
#include "lopt/tasks/image/mlp_parts.h"
#include "lopt/tasks/layers/network_init.h"

namespace lopt {
namespace {

MlpShape MakeShape(const ImageMlpOptions& options, const ImageData& data) {
  return MakeMlpShape(data.features(), options.hidden, data.classes(), options.norm);
}

Layout BothLayouts(const Layout& first, const Layout& second) {
  std::vector<std::pair<std::string, Shape>> entries;
  for (const Layout* layout : {&first, &second}) {
    for (const LayoutEntry& entry : layout->entries()) entries.push_back({entry.name, entry.shape});
  }
  return Layout(std::move(entries));
}

TaskParts Parts(const ImageMlpOptions& options, const std::shared_ptr<const ImageData>& data) {
  TaskParts parts = AugmentedClassifierParts(options.images, ImageBatches(options.augment, data));
  const MlpShape shape = MakeShape(options, *data);
  parts.model_state = BothLayouts(parts.model_state, MlpStatistics(shape));
  parts.params = MlpLayout(shape);
  parts.flops = MlpFlops(shape) * static_cast<double>(options.images.batch_size);
  return parts;
}

}  // namespace

void ImageMlpOptions::Visit(FieldVisitor& v) {
  images.Visit(v);
  v.Field("hidden", &hidden, Between(1, 100000), "Units of each hidden layer.");
  v.Choice("activation", &activation, kActivations, "The function between layers.");
  VisitNorm(v, &norm);
  VisitAugment(v, &augment);
}

ImageMlp::ImageMlp(const ImageMlpOptions& options, const std::shared_ptr<const ImageData>& data)
    : ImageClassifier(Parts(CheckOptions("ImageMLP", options), data), options.augment, data),
      shape_(MakeShape(options, images().data())),
      activation_(options.activation) {}

void ImageMlp::DoInit(std::span<const float>, Key key, std::span<float> params,
                      std::span<float> model_state) const {
  InitMlpStatistics(model_state_layout(), model_state);
  images().Init(model_state);
  InitNetwork(params_layout(), key, params);
}

void ImageMlp::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  const int64_t size = params_layout().size();
  const int64_t augmentation = images().model_state_layout().size();
  const int64_t statistics = model_state_layout().size() - augmentation;
  const auto loss_of_row = [&](int64_t row, const ImageBatch& batch, bool train,
                               std::span<float> gradient, std::span<float> logits) {
    const int64_t state = row * model_state_layout().size();
    return MlpLoss(shape_,
                   {.activation = activation_,
                    .params = e.params.subspan(row * size, size),
                    .statistics = e.model_state.subspan(state + augmentation, statistics),
                    .train = train,
                    .batch = batch,
                    .gradient = gradient,
                    .logits = logits},
                   scratch);
  };
  EvaluateClassifiers(images(), e, loss_of_row, scratch);
}

}  // namespace lopt
