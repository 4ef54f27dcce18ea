#include "tasks/image_mlp.h"

#include "base/error.h"
#include "torch/task_type.h"
#ifdef LOPT_LIBTORCH
#include "torch/activate.h"
#include "torch/image_twin.h"
#endif

namespace lopt {
namespace {

#ifdef LOPT_LIBTORCH

torch::Tensor MlpLogits(const TorchEvaluation& e, const ImageTensors& images,
                        Activation activation) {
  torch::Tensor x = images.Images(e.examples);
  for (size_t p = 0; p < e.params.size(); p += 2) {
    if (p > 0) x = Activate(activation, x);
    x = torch::baddbmm(e.params[p + 1].unsqueeze(1), x, e.params[p]);
  }
  return x;
}

std::shared_ptr<const TaskFamily> MakeImageMlp(const ImageMlpOptions& options,
                                               const TaskResources& resources) {
  Require(options.norm == Norm::kNone,
          "TorchImageMLP: norm must be none, got {}; ImageMLP has norms",
          NameOf("norm", options.norm, kNorms));
  const auto data = GetImages(options.images, resources);
  return MakeTwin(
      "ImageMLP", std::make_shared<ImageMlp>(options, data), options.images, options.augment, data,
      [activation = options.activation](const TorchEvaluation& e, const ImageTensors& images) {
        return MlpLogits(e, images, activation);
      });
}

#endif

}  // namespace
}  // namespace lopt

LOPT_TORCH_TASK(image_mlp, ImageMlpOptions, "TorchImageMLP",
                "ImageMLP computed by LibTorch with autograd; needs the torch module.",
                MakeImageMlp)
