#include "tasks/image_mlp.h"

#include "base/error.h"
#include "torch/task_type.h"

#ifdef LOPT_LIBTORCH

namespace lopt {
namespace {

// Initial params of the native task, cut into tensors.
NamedTensors NativeInit(const ImageMlp& native, Key key) {
  const Layout& layout = native.params_layout();
  std::vector<float> row(static_cast<size_t>(layout.size()));
  native.Init({}, key, row, {});
  NamedTensors tensors;
  for (const LayoutEntry& entry : layout.entries()) {
    tensors.emplace_back(entry.name,
                         torch::from_blob(row.data() + entry.offset, entry.shape).clone());
  }
  return tensors;
}

torch::Tensor Activate(Activation activation, const torch::Tensor& x) {
  switch (activation) {
    case Activation::kRelu:
      return torch::relu(x);
    case Activation::kTanh:
      return torch::tanh(x);
    case Activation::kRelu6:
      return torch::relu6(x);
    case Activation::kSelu:
      return torch::selu(x);
    case Activation::kCos:
      return torch::cos(x);
    case Activation::kSin:
      return torch::sin(x);
    case Activation::kSigmoid:
      return torch::sigmoid(x);
    case Activation::kSilu:
      return torch::silu(x);
    case Activation::kGelu:
      return torch::gelu(x, "tanh");
    case Activation::kLeakyRelu:
      return torch::leaky_relu(x, -0.5);
    case Activation::kSign: {
      const torch::Tensor through = torch::clamp(x, -1, 1);
      return through + (torch::where(x < 0, -1, torch::where(x >= 0, 1, x)) - through).detach();
    }
  }
  return x;
}

TorchLoss MlpLoss(const TorchEvaluation& e, const ImageTensors& images, Activation activation) {
  torch::Tensor x = images.Images(e.examples);
  for (size_t p = 0; p < e.params.size(); p += 2) {
    if (p > 0) {
      x = Activate(activation, x);
    }
    x = torch::baddbmm(e.params[p + 1].unsqueeze(1), x, e.params[p]);
  }
  return ClassifierLoss(x, images.Labels(e.examples), e.aux_wanted);
}

// The same params layout, initial params, batches, losses and accuracy as ImageMlp of the same
// options, gradients by autograd.
std::shared_ptr<const TaskFamily> MakeImageMlp(const ImageMlpOptions& options,
                                               const TaskResources& resources) {
  Require(options.augment.Type() == "None",
          "TorchImageMLP: augment must be None, got {}; ImageMLP augments its images",
          options.augment.Type());
  const auto data = GetImages(options.images, resources);
  const auto native = std::make_shared<ImageMlp>(options, data);
  return std::make_shared<TorchTaskFamily>(
      [native](Key key, const torch::Tensor&) { return NativeInit(*native, key); },
      [images = ImageTensors(data), activation = options.activation](const TorchEvaluation& e) {
        return MlpLoss(e, images, activation);
      },
      ImageClassifierParts(options.images, *data), TorchRows::kTogether, ShowBatch(data));
}

}  // namespace
}  // namespace lopt

#endif

LOPT_TORCH_TASK(image_mlp, ImageMlpOptions, "TorchImageMLP",
                "ImageMLP computed by LibTorch with autograd; needs the torch module.",
                MakeImageMlp)
