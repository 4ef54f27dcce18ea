#include "lopt/tasks/image/image_autoencoder.h"

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/tasks/image/mlp_parts.h"
#include "lopt/tasks/image/squared_error_kernel.h"
#include "lopt/tasks/layers/network_init.h"

namespace lopt {
namespace {

MlpShape AutoencoderShape(const ImageAutoencoderOptions& options, const ImageData& data) {
  return MakeMlpShape(data.features(), options.hidden, data.features());
}

TaskParts AutoencoderParts(const ImageAutoencoderOptions& options, const ImageData& data) {
  Require(!data.holds_signals(),
          "ImageAutoencoder: the data are signals, wanted images: it gives numbers in [0, 1]");
  TaskParts parts = ImageClassifierParts(options.images, data);
  parts.aux = {};
  parts.classes = 0;
  parts.normalizer_maximum = 1;
  const MlpShape shape = AutoencoderShape(options, data);
  parts.params = MlpLayout(shape);
  parts.flops = MlpFlops(shape) * static_cast<double>(options.images.batch_size);
  return parts;
}

}  // namespace

void ImageAutoencoderOptions::Visit(FieldVisitor& v) {
  images.Visit(v);
  v.Field("hidden", &hidden, Between(1, 100000), "Units of each hidden layer.");
  v.Choice("activation", &activation, kActivations, "The function between layers.");
}

ImageAutoencoder::ImageAutoencoder(const ImageAutoencoderOptions& options,
                                   std::shared_ptr<const ImageData> data)
    : TaskFamily(AutoencoderParts(CheckOptions("ImageAutoencoder", options), *data)),
      data_(std::move(data)),
      shape_(AutoencoderShape(options, *data_)),
      activation_(options.activation) {}

void ImageAutoencoder::DoInit(std::span<const float>, Key key, std::span<float> params,
                              std::span<float>) const {
  InitNetwork(params_layout(), key, params);
}

MlpEvaluation ImageAutoencoder::EvaluationOf(const TaskEvaluation& e, int64_t row) const {
  const int64_t size = params_layout().size();
  const int64_t batch = std::ssize(e.examples) / e.rows;
  return {
      .activation = activation_,
      .params = e.params.subspan(row * size, size),
      .batch = {.images = data_->images(),
                .stride = data_->stride(),
                .labels = data_->labels(),
                .examples = e.examples.subspan(row * batch, batch)},
      .gradient = e.gradients.empty() ? std::span<float>() : e.gradients.subspan(row * size, size)};
}

void ImageAutoencoder::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  for (int64_t row = 0; row < e.rows; ++row) {
    e.losses[row] = SquaredErrorLoss(shape_, EvaluationOf(e, row), scratch);
  }
}

std::vector<Pictures> ImageAutoencoder::DoShow(const TaskEvaluation& e, Workspace& scratch) const {
  const MlpEvaluation evaluation = EvaluationOf(e, 0);
  std::vector<Pictures> shown = BatchPictures(*data_, evaluation.batch);
  Pictures reconstruction = shown[0];
  reconstruction.name = "reconstruction";
  MlpOutputs(shape_, evaluation, reconstruction.pixels, scratch);
  shown.push_back(std::move(reconstruction));
  return shown;
}

}  // namespace lopt
