#include "lopt/tasks/image/image_conv.h"

#include <fmt/core.h>

#include <algorithm>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/tasks/image/image_conv_kernel.h"
#include "lopt/tasks/layers/network_init.h"

namespace lopt {
namespace {

ConvShape MakeConvShape(const ImageConvOptions& options, const ImageData& data) {
  ConvShape shape{.head = options.head, .classes = data.classes()};
  int64_t height = data.height();
  int64_t width = data.width();
  int64_t channels = data.channels();
  for (size_t l = 0; l < options.channels.size(); ++l) {
    const int64_t stride = options.strides[std::min(l, options.strides.size() - 1)];
    const ConvLayer layer{.rows = {height, options.kernel[0], stride},
                          .columns = {width, options.kernel[1], stride},
                          .channels = channels,
                          .filters = options.channels[l],
                          .pool = options.pool};
    shape.layers.push_back(layer);
    height = layer.pooled_height();
    width = layer.pooled_width();
    channels = layer.filters;
  }
  return shape;
}

const ImageConvOptions& CheckedConvOptions(const ImageConvOptions& options) {
  CheckOptions("ImageConv", options);
  Require(!options.channels.empty(), "ImageConv: channels is empty, wanted at least one layer");
  Require(!options.strides.empty() && options.strides.size() <= options.channels.size(),
          "ImageConv: {} strides for {} layers, wanted one for each or fewer, of which the last "
          "holds for the rest",
          options.strides.size(), options.channels.size());
  Require(options.kernel.size() == 2, "ImageConv: {} sizes of the kernel, wanted [height, width]",
          options.kernel.size());
  return options;
}

TaskParts ConvParts(const ImageConvOptions& options, const std::shared_ptr<const ImageData>& data) {
  TaskParts parts = AugmentedClassifierParts(options.images, ImageBatches(options.augment, data));
  const ConvShape shape = MakeConvShape(options, *data);
  std::vector<std::pair<std::string, Shape>> tensors;
  // Of a layer: the product, the gradient of its weights and, behind the first, of its input.
  double products = 0;
  for (size_t l = 0; l < shape.layers.size(); ++l) {
    const ConvLayer& layer = shape.layers[l];
    const std::string name = l == 0 ? "conv2_d/" : fmt::format("conv2_d_{}/", l);
    tensors.push_back(
        {name + "w", {layer.rows.kernel, layer.columns.kernel, layer.channels, layer.filters}});
    tensors.push_back({name + "b", {layer.filters}});
    products += (l == 0 ? 2.0 : 3.0) * static_cast<double>(layer.positions() * layer.weights());
  }
  tensors.push_back({"linear/w", {shape.features(), shape.classes}});
  tensors.push_back({"linear/b", {shape.classes}});
  products += 3.0 * static_cast<double>(shape.features() * shape.classes);
  parts.params = Layout(std::move(tensors));
  parts.flops = 2 * products * static_cast<double>(options.images.batch_size);
  return parts;
}

}  // namespace

void ImageConvOptions::Visit(FieldVisitor& v) {
  images.Visit(v);
  v.Field("channels", &channels, Between(1, 10000), "Output channels of each convolution.");
  v.Field("strides", &strides, Between(1, 256),
          "The stride of each convolution; the last one holds for the rest.");
  v.Field("kernel", &kernel, Between(1, 256), "[height, width] of all kernels.");
  v.Choice("activation", &activation, kActivations, "The function behind each convolution.");
  v.Choice("pool", &pool, kPools,
           "What becomes of the numbers behind the activation: nothing, the largest or the mean of "
           "every 2 x 2.");
  v.Choice("head", &head, kConvHeads,
           "What the linear layer takes: the mean of each channel over all positions, or all "
           "numbers.");
  VisitAugment(v, &augment);
}

ImageConv::ImageConv(const ImageConvOptions& options, const std::shared_ptr<const ImageData>& data)
    : ImageClassifier(ConvParts(CheckedConvOptions(options), data), options.augment, data),
      shape_(MakeConvShape(options, images().data())),
      activation_(options.activation) {}

void ImageConv::DoInit(std::span<const float>, Key key, std::span<float> params,
                       std::span<float> model_state) const {
  images().Init(model_state);
  InitNetwork(params_layout(), key, params);
}

void ImageConv::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  const int64_t size = params_layout().size();
  const auto loss_of_row = [&](int64_t row, const ImageBatch& batch, bool /*train*/,
                               std::span<float> gradient, std::span<float> logits) {
    return ConvLoss(shape_,
                    {.activation = activation_,
                     .params = e.params.subspan(row * size, size),
                     .batch = batch,
                     .gradient = gradient,
                     .logits = logits},
                    scratch);
  };
  EvaluateClassifiers(images(), e, loss_of_row, scratch);
}

}  // namespace lopt
