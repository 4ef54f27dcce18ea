#include "lopt/torch/task_type.h"
#ifdef LOPT_LIBTORCH
#include "lopt/base/options.h"
#include "lopt/torch/constant_tensor.h"
#include "lopt/torch/image_layers.h"
#endif

namespace lopt {
namespace {

struct StnOptions {
  ImageOptions images = {.image_size = 28};
  std::vector<int64_t> localization_channels = {8, 10};
  int64_t localization_hidden = 32;
  std::vector<int64_t> channels = {10, 20};
  int64_t hidden = 50;
  std::vector<int64_t> mask = {1, 1, 1, 1, 1, 1};
  bool align_corners = false;
  void Visit(FieldVisitor& v) {
    images.Visit(v);
    v.Field("localization_channels", &localization_channels, Between(1, 100000),
            "Channels behind the two convolutions of the localization net.");
    v.Field("localization_hidden", &localization_hidden, Between(1, 100000),
            "Hidden units of the localization net's linear layers.");
    v.Field("channels", &channels, Between(1, 100000),
            "Channels behind the two convolutions of the classifier.");
    v.Field("hidden", &hidden, Between(1, 100000),
            "Hidden units of the classifier's linear layers.");
    v.Field("mask", &mask, Between(0, 1),
            "Which of theta's six numbers, by rows, the net chooses; the others are the "
            "identity's. [1, 0, 1, 0, 1, 1] is scale and translation.");
    v.Field("align_corners", &align_corners,
            "Coordinates of -1 and 1 are the middles of the first and last pixels, not the edges "
            "of the image.");
  }
};

#ifdef LOPT_LIBTORCH

constexpr char kStn[] = "TorchSTN";
constexpr int64_t kPool = 2;
constexpr int64_t kStnKernel = 5;
constexpr int64_t kFirstLocalizationKernel = 7;

// Two convolutions without padding, each followed by pooling, as both nets have them.
struct ConvPair {
  int64_t kernels[2];
  std::vector<int64_t> channels;  // of the image and behind each convolution

  // Sizes along one side of the image: behind each convolution and, last, behind all.
  std::array<int64_t, 3> Sizes(int64_t size) const {
    const int64_t first = size - kernels[0] + 1;
    const int64_t second = first / kPool - kernels[1] + 1;
    return {first, second, second / kPool};
  }
  int64_t Features(const ImageData& data) const {
    return Sizes(data.height())[2] * Sizes(data.width())[2] * channels[2];
  }
  // Multiplications and additions of one image's forward pass in the first and second convolution.
  std::array<double, 2> Flops(const ImageData& data) const {
    std::array<double, 2> flops;
    for (size_t c = 0; c < 2; ++c) {
      flops[c] = static_cast<double>(2 * Sizes(data.height())[c] * Sizes(data.width())[c] *
                                     channels[c] * channels[c + 1] * kernels[c] * kernels[c]);
    }
    return flops;
  }
};

struct StnNet {
  StnNet(const StnOptions& options, const ImageData& data)
      : localization{{kFirstLocalizationKernel, kStnKernel}, {data.channels()}},
        classifier{{kStnKernel, kStnKernel}, {data.channels()}},
        mask(torch::tensor(options.mask) > 0),
        align_corners(options.align_corners),
        height(data.height()),
        width(data.width()) {
    const auto add = [](const std::vector<int64_t>& channels, ConvPair* convolutions) {
      convolutions->channels.insert(convolutions->channels.end(), channels.begin(), channels.end());
    };
    add(options.localization_channels, &localization);
    add(options.channels, &classifier);
  }

  ConvPair localization;
  ConvPair classifier;
  ConstantTensor mask;  // [6]: whether the net chooses it
  bool align_corners;
  int64_t height;
  int64_t width;
};

// The layers' params: weight and bias each, in this order.
enum StnLayer : size_t {
  kLocalizationConv0,
  kLocalizationConv1,
  kLocalizationLinear0,
  kLocalizationLinear1,
  kConv0,
  kConv1,
  kLinear0,
  kLinear1
};

ReplicaWeights LayerOf(const std::vector<torch::Tensor>& params, size_t layer) {
  return {params[2 * layer], params[2 * layer + 1]};
}

torch::Tensor IdentityTheta() { return torch::tensor({1.F, 0.F, 0.F, 0.F, 1.F, 0.F}); }

// As torch's modules, but for the last layer of the localization net: its weights are 0 and its
// bias is near the identity and not at it, where every sample of the image would lie on a kink of
// the interpolation and the gradient of theta would be decided by rounding.
NamedTensors StnInit(const StnNet& net, const StnOptions& options, const ImageData& data, Key key) {
  NamedTensors params;
  const auto convolution = [&](const std::string& name, const ConvPair& pair, size_t c) {
    AddLayer(name, {pair.channels[c + 1], pair.channels[c], pair.kernels[c], pair.kernels[c]},
             pair.channels[c + 1], key, &params);
  };
  const auto linear = [&](const std::string& name, int64_t in, int64_t out) {
    AddLayer(name, {out, in}, out, key, &params);
  };
  convolution("localization/conv_0", net.localization, 0);
  convolution("localization/conv_1", net.localization, 1);
  linear("localization/linear_0", net.localization.Features(data), options.localization_hidden);
  linear("localization/linear_1", options.localization_hidden, 6);
  params[2 * kLocalizationLinear1].second.zero_();
  torch::Tensor& theta = params[2 * kLocalizationLinear1 + 1].second;
  theta = IdentityTheta() + 0.1 * (UniformTensor(FoldIn(key, params.size() - 1), {6}) - 0.5);
  convolution("conv_0", net.classifier, 0);
  convolution("conv_1", net.classifier, 1);
  linear("linear_0", net.classifier.Features(data), options.hidden);
  linear("linear_1", options.hidden, data.classes());
  return params;
}

// Two convolutions, each followed by pooling and ReLU: [n, batch, features], channel first.
torch::Tensor ConvFeatures(const torch::Tensor& images, const ReplicaWeights& first,
                           const ReplicaWeights& second) {
  torch::Tensor x = images;
  for (const ReplicaWeights& w : {first, second}) {
    x = torch::relu(torch::max_pool2d(Convolution(x, w, /*stride=*/1, /*padding=*/0), kPool));
  }
  return ByReplica(x, first.weight.size(0)).flatten(2);
}

// Images [batch, n channels, height, width] as the transformer shows them to the classifier.
torch::Tensor Straighten(const StnNet& net, const std::vector<torch::Tensor>& params,
                         const torch::Tensor& images) {
  torch::Tensor x = ConvFeatures(images, LayerOf(params, kLocalizationConv0),
                                 LayerOf(params, kLocalizationConv1));
  x = torch::relu(Linear(x, LayerOf(params, kLocalizationLinear0)));
  const torch::Tensor chosen = Linear(x, LayerOf(params, kLocalizationLinear1));
  const torch::Tensor theta =
      torch::where(net.mask.On(x.device()), chosen, IdentityTheta().to(x.device()));
  // Replicas of an image beside their thetas: both [batch n, ...].
  const torch::Tensor each = images.view({-1, net.classifier.channels[0], net.height, net.width});
  return SampleAffine(each, theta.transpose(0, 1).reshape({-1, 2, 3}), net.align_corners)
      .view_as(images);
}

torch::Tensor StnLogits(const StnNet& net, const std::vector<torch::Tensor>& params,
                        const torch::Tensor& images) {
  torch::Tensor x = ConvFeatures(Straighten(net, params, images), LayerOf(params, kConv0),
                                 LayerOf(params, kConv1));
  x = torch::relu(Linear(x, LayerOf(params, kLinear0)));
  return Linear(x, LayerOf(params, kLinear1));
}

// Of the gradient from one image. A layer costs three times its forward pass, two where nothing
// before it has weights: the classifier's first convolution has the localization net before it.
double StnFlops(const StnNet& net, const StnOptions& options, const ImageData& data) {
  const auto linear = [](int64_t in, int64_t out) { return static_cast<double>(2 * in * out); };
  const auto [locate_0, locate_1] = net.localization.Flops(data);
  const auto [classify_0, classify_1] = net.classifier.Flops(data);
  return 2 * locate_0 + 3 * (locate_1 + classify_0 + classify_1 +
                             linear(net.localization.Features(data), options.localization_hidden) +
                             linear(options.localization_hidden, 6) +
                             linear(net.classifier.Features(data), options.hidden) +
                             linear(options.hidden, data.classes()));
}

std::shared_ptr<const TaskFamily> MakeStn(const StnOptions& options,
                                          const TaskResources& resources) {
  CheckOptions(kStn, options);
  Require(options.mask.size() == 6, "{}: mask has {} numbers, wanted 6, those of theta [2, 3]",
          kStn, options.mask.size());
  for (const auto& [name, channels] :
       {std::pair("localization_channels", &options.localization_channels),
        std::pair("channels", &options.channels)}) {
    Require(channels->size() == 2, "{}: {} has {} numbers, wanted 2, one for each convolution",
            kStn, name, channels->size());
  }
  const auto data = GetImages(options.images, resources);
  const StnNet net(options, *data);
  const int64_t side = std::min(data->height(), data->width());
  Require(net.localization.Sizes(side)[2] >= 1 && net.classifier.Sizes(side)[2] >= 1,
          "{}: images of {} x {} pixels, wanted at least 18 x 18: two convolutions and poolings "
          "leave nothing of smaller ones",
          kStn, data->height(), data->width());

  TaskParts parts = ImageClassifierParts(options.images, *data);
  parts.flops = StnFlops(net, options, *data) * static_cast<double>(options.images.batch_size);
  const TorchRows rows = RowsBySize(parts.flops);
  return std::make_shared<TorchTaskFamily>(
      [=](Key key, const torch::Tensor&) { return StnInit(net, options, *data, key); },
      [net, images = ImageTensors(data)](const TorchEvaluation& e) {
        const torch::Tensor x = SideBySide(images.Images(e.examples), net.height, net.width);
        return ClassifierLoss(StnLogits(net, e.params, x), images.Labels(e.examples), e.aux_wanted);
      },
      std::move(parts), rows,
      [net, images = ImageTensors(data)](const TorchEvaluation& e) {
        const torch::Tensor x = SideBySide(images.Images(e.examples), net.height, net.width);
        return std::vector<Pictures>{ToPictures("batch", x),
                                     ToPictures("straightened", Straighten(net, e.params, x))};
      });
}

#endif

}  // namespace
}  // namespace lopt

LOPT_TORCH_TASK(stn, StnOptions, "TorchSTN",
                "A classifier of images that a spatial transformer straightens first; needs the "
                "torch module.",
                MakeStn)
