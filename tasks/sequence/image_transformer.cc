#include "lopt/tasks/sequence/image_transformer.h"

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/tasks/sequence/embeddings.h"
#include "lopt/tasks/sequence/sequence_limits.h"
#include "lopt/tasks/sequence/transformer_kernel.h"

namespace lopt {
namespace {

constexpr char kImageTransformer[] = "ImageTransformer";

TransformerShape ShapeOnPatches(const ImageTransformerOptions& options, const ImageData& data) {
  CheckOptions(kImageTransformer, options);
  const int64_t patch = options.patch;
  Require(data.height() % patch == 0 && data.width() % patch == 0,
          "{}: patch must divide the images' height and width, got patch {} and images of {} x {}",
          kImageTransformer, patch, data.height(), data.width());
  const int64_t places = data.height() / patch * (data.width() / patch);
  Require(places <= kMostPlaces,
          "{}: patch {} cuts images of {} x {} into {} patches, wanted at most {}",
          kImageTransformer, patch, data.height(), data.width(), places, kMostPlaces);
  const auto& [width, layers, heads, embedding_std] = options.model;
  const TransformerShape shape{.length = places,
                               .inputs = patch * patch * data.channels(),
                               .width = width,
                               .layers = layers,
                               .heads = heads,
                               .outputs = data.classes()};
  CheckTransformer(kImageTransformer, shape);
  return shape;
}

TaskParts ImageTransformerParts(const ImageTransformerOptions& options,
                                const std::shared_ptr<const ImageData>& data) {
  const TransformerShape shape = ShapeOnPatches(options, *data);
  TaskParts parts = AugmentedClassifierParts(options.images, ImageBatches(options.augment, data));
  parts.params = TransformerLayout(shape);
  parts.flops = TransformerFlops(shape, options.images.batch_size);
  return parts;
}

}  // namespace

void ImageTransformerOptions::Visit(FieldVisitor& v) {
  images.Visit(v);
  v.Field("patch", &patch, Between(1, 256), "Height and width of a patch, in pixels.");
  model.Visit(v);
  VisitAugment(v, &augment);
}

ImageTransformer::ImageTransformer(const ImageTransformerOptions& options,
                                   const std::shared_ptr<const ImageData>& data)
    : ImageClassifier(ImageTransformerParts(options, data), options.augment, data),
      shape_(ShapeOnPatches(options, images().data())),
      patch_(options.patch),
      embedding_std_(options.model.embedding_std) {}

void ImageTransformer::DoInit(std::span<const float>, Key key, std::span<float> params,
                              std::span<float> model_state) const {
  images().Init(model_state);
  InitNetworkOnEmbeddings(params_layout(), embedding_std_, key, params);
}

void ImageTransformer::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  const int64_t size = params_layout().size();
  const auto loss_of_row = [&](int64_t row, const ImageBatch& batch, bool /*train*/,
                               std::span<float> gradient, std::span<float> logits) {
    return ImageTransformerLoss(
        shape_,
        {.params = e.params.subspan(row * size, size), .gradient = gradient, .logits = logits},
        {.batch = batch,
         .width = images().data().width(),
         .channels = images().data().channels(),
         .patch = patch_},
        scratch);
  };
  EvaluateClassifiers(images(), e, loss_of_row, scratch);
}

}  // namespace lopt
