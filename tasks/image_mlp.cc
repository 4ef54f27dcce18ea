#include "tasks/image_mlp.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tasks/distortion.h"
#include "tasks/image_mlp_kernel.h"
#include "tasks/image_mlp_reference.h"

namespace lopt {
namespace {

MlpShape MakeShape(const ImageMlpOptions& options, const ImageData& data) {
  Require(data.features() == options.image_size * options.image_size,
          "ImageMLP: images of {} numbers, wanted image_size {} squared", data.features(),
          options.image_size);
  Require(options.activation == "relu" || options.activation == "tanh",
          "ImageMLP: there is no activation '{}'. Choices: relu, tanh", options.activation);
  Require(options.batch_size >= 1, "ImageMLP: batch_size must be at least 1, got {}",
          options.batch_size);
  MlpShape shape;
  shape.sizes.push_back(data.features());
  for (const int64_t size : options.hidden) {
    Require(size >= 1, "ImageMLP: a hidden layer needs at least 1 unit, got {}", size);
    shape.sizes.push_back(size);
  }
  shape.sizes.push_back(data.classes());
  shape.activation = options.activation == "tanh" ? Activation::kTanh : Activation::kRelu;
  return shape;
}

Layout ParamsLayout(const MlpShape& shape) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (int64_t l = 0; l < shape.layers(); ++l) {
    const std::string layer = fmt::format("mlp/linear_{}/", l);
    tensors.push_back({layer + "w", {shape.sizes[l], shape.sizes[l + 1]}});
    tensors.push_back({layer + "b", {shape.sizes[l + 1]}});
  }
  return Layout(std::move(tensors));
}

}  // namespace

void ImageMlpOptions::Visit(FieldVisitor& v) {
  v.Field("image_size", &image_size, AtLeast(1), "Images are resized to this height and width.");
  v.Field("hidden", &hidden, AtLeast(1), "Units of each hidden layer.");
  v.Field("activation", &activation, {"relu", "tanh"}, "The function between layers.");
  v.Field("batch_size", &batch_size, AtLeast(1), "Examples a step.");
  v.Field("data", &data, ImageSources(),
          "The images: \"idx\" reads the IDX files of the data directory, \"glyphs\" draws digits, "
          "\"default\" is \"idx\" if a data directory is given and \"glyphs\" otherwise.");
  v.Field("distortion", &distortion, Distortions(),
          "Makes another data set of the same images: bright and dark exchanged, a quarter of the "
          "brightness, noise on every pixel, or a fifth of the train split's labels drawn anew.");
}

ImageMlp::ImageMlp(const ImageMlpOptions& options, std::shared_ptr<const ImageData> data,
                   Implementation implementation)
    : TaskFamily({.params = ParamsLayout(MakeShape(options, *data)),
                  .aux = Layout({{"accuracy", Shape{}}})}),
      data_(std::move(data)),
      shape_(MakeShape(options, *data_)),
      batch_size_(options.batch_size),
      implementation_(implementation) {}

double ImageMlp::Normalize(std::span<const float>, double loss) const {
  const double maximum = *NormalizerMaximum();
  return std::isfinite(loss) ? std::clamp(loss, 0.0, maximum) : maximum;
}

std::optional<double> ImageMlp::NormalizerMaximum() const {
  return 1.5 * std::log(static_cast<double>(data_->classes()));
}

std::pair<int64_t, int64_t> ImageMlp::ExampleRange(Split split) const {
  return data_->range(split);
}

void ImageMlp::DoInit(std::span<const float>, Key key, std::span<float> params,
                      std::span<float>) const {
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
  const Workspace::Frame frame(scratch);
  const int64_t size = params_layout().size();
  const bool drawn = e.examples.empty();
  const int64_t batch = drawn ? batch_size_ : static_cast<int64_t>(e.examples.size()) / e.rows;
  const auto [first, last] = ExampleRange(e.split);
  for (const int32_t example : e.examples) {
    Require(example >= 0 && example < data_->count(), "ImageMLP: there is no example {} among {}",
            example, data_->count());
  }
  const std::span<int32_t> rows = scratch.Take<int32_t>(drawn ? batch : 0);
  for (int64_t row = 0; row < e.rows; ++row) {
    if (drawn) {
      Randint(ImageBatchKey(e.keys[row]), static_cast<int32_t>(first), static_cast<int32_t>(last),
              rows);
    }
    const MlpBatch examples{.images = data_->images(),
                            .stride = data_->stride(),
                            .labels = data_->labels(),
                            .examples = drawn ? rows : e.examples.subspan(row * batch, batch)};
    const auto loss = implementation_ == Implementation::kFast ? MlpLoss : MlpLossReference;
    const MlpResult result = loss(
        shape_, e.params.subspan(row * size, size), examples,
        e.gradients.empty() ? std::span<float>() : e.gradients.subspan(row * size, size), scratch);
    e.losses[row] = result.loss;
    if (!e.aux.empty()) {
      e.aux[row] = static_cast<float>(result.correct) / static_cast<float>(batch);
    }
  }
}

}  // namespace lopt
