#include "lopt/torch/task_type.h"
#ifdef LOPT_LIBTORCH
#include <fmt/core.h>

#include "lopt/base/options.h"
#include "lopt/torch/image_layers.h"
#endif

namespace lopt {
namespace {

struct ConvAutoencoderOptions {
  ImageOptions images = {.image_size = 28};
  std::vector<int64_t> channels = {8, 16};
  void Visit(FieldVisitor& v) {
    images.Visit(v);
    v.Field("channels", &channels, Between(1, 100000),
            "Channels behind each convolution of the encoder, which halves height and width; the "
            "decoder goes back the same way.");
  }
};

#ifdef LOPT_LIBTORCH

constexpr int64_t kKernel = 3;
constexpr int64_t kStride = 2;
constexpr int64_t kPadding = 1;

// Height and width behind each convolution, those of the images first.
std::vector<std::array<int64_t, 2>> EncoderSizes(const ImageData& data, size_t layers) {
  std::vector<std::array<int64_t, 2>> sizes = {{data.height(), data.width()}};
  for (size_t l = 0; l < layers; ++l) {
    const auto [height, width] = sizes.back();
    sizes.push_back({(height + 1) / 2, (width + 1) / 2});
  }
  return sizes;
}

NamedTensors ConvAutoencoderInit(const std::vector<int64_t>& channels, Key key) {
  NamedTensors params;
  for (size_t l = 0; l + 1 < channels.size(); ++l) {
    AddLayer(fmt::format("encoder/conv_{}", l), {channels[l + 1], channels[l], kKernel, kKernel},
             channels[l + 1], key, &params);
  }
  for (size_t l = channels.size() - 1; l > 0; --l) {
    AddLayer(fmt::format("decoder/conv_{}", channels.size() - 1 - l),
             {channels[l], channels[l - 1], kKernel, kKernel}, channels[l - 1], key, &params);
  }
  return params;
}

// What the net makes of images that lie side by side.
torch::Tensor Reconstruct(const std::vector<torch::Tensor>& params, const torch::Tensor& images,
                          const std::vector<std::array<int64_t, 2>>& sizes) {
  const size_t layers = sizes.size() - 1;
  torch::Tensor x = images;
  for (size_t l = 0; l < layers; ++l) {
    x = torch::relu(Convolution(x, {params[2 * l], params[2 * l + 1]}, kStride, kPadding));
  }
  for (size_t l = layers; l < 2 * layers; ++l) {
    // From a size to the one that the encoder halved: 2 size - 1 if that was odd, else 2 size.
    const auto [height, width] = sizes[2 * layers - 1 - l];
    x = TransposedConvolution(x, {params[2 * l], params[2 * l + 1]}, kStride, kPadding,
                              {(height + 1) % 2, (width + 1) % 2});
    x = l + 1 < 2 * layers ? torch::relu(x) : torch::sigmoid(x);
  }
  return x;
}

// Of one image's forward pass.
double ConvAutoencoderFlops(const std::vector<int64_t>& channels,
                            const std::vector<std::array<int64_t, 2>>& sizes) {
  // An encoder's convolution and the decoder's of the same sizes cost the same; the gradient twice
  // that, but for the images'.
  double flops = 0;
  for (size_t l = 0; l + 1 < channels.size(); ++l) {
    const auto [height, width] = sizes[l + 1];
    const auto once =
        static_cast<double>(2 * height * width * channels[l] * channels[l + 1] * kKernel * kKernel);
    flops += once * (l == 0 ? 5 : 6);
  }
  return flops;
}

std::shared_ptr<const TaskFamily> MakeConvAutoencoder(const ConvAutoencoderOptions& options,
                                                      const TaskResources& resources) {
  constexpr char kWho[] = "TorchImageAutoencoder";
  CheckOptions(kWho, options);
  Require(!options.channels.empty(),
          "{}: channels is empty, wanted the channels behind each convolution of the encoder",
          kWho);
  const auto data = GetImages(options.images, resources);
  Require(!data->holds_signals(),
          "{}: the data are signals, wanted images: it gives numbers in [0, 1]", kWho);
  std::vector<int64_t> channels = {data->channels()};
  channels.insert(channels.end(), options.channels.begin(), options.channels.end());
  const auto sizes = EncoderSizes(*data, options.channels.size());

  TaskParts parts = ImageClassifierParts(options.images, *data);
  parts.aux = {};
  parts.classes = 0;
  parts.normalizer_maximum = 1;
  parts.flops =
      ConvAutoencoderFlops(channels, sizes) * static_cast<double>(options.images.batch_size);
  const TorchRows rows = RowsBySize(parts.flops);
  return std::make_shared<TorchTaskFamily>(
      [channels](Key key, const torch::Tensor&) { return ConvAutoencoderInit(channels, key); },
      [images = ImageTensors(data), sizes](const TorchEvaluation& e) -> TorchLoss {
        const auto [height, width] = sizes[0];
        const torch::Tensor x = SideBySide(images.Images(e.examples), height, width);
        const torch::Tensor errors = Reconstruct(e.params, x, sizes) - x;
        return ByReplica(errors.square(), e.examples.size(0)).mean({1, 2, 3, 4});
      },
      std::move(parts), rows,
      [images = ImageTensors(data), sizes](const TorchEvaluation& e) {
        const auto [height, width] = sizes[0];
        const torch::Tensor x = SideBySide(images.Images(e.examples), height, width);
        return std::vector<Pictures>{ToPictures("batch", x),
                                     ToPictures("reconstruction", Reconstruct(e.params, x, sizes))};
      });
}

#endif

}  // namespace
}  // namespace lopt

LOPT_TORCH_TASK(image_autoencoder, ConvAutoencoderOptions, "TorchImageAutoencoder",
                "A convolutional autoencoder of images; needs the torch module.",
                MakeConvAutoencoder)
