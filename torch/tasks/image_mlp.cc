#include "lopt/tasks/image/image_mlp.h"

#include "lopt/torch/task_type.h"
#ifdef LOPT_LIBTORCH
#include <algorithm>

#include "lopt/torch/activate.h"
#include "lopt/torch/image_twin.h"
#endif

namespace lopt {
namespace {

#ifdef LOPT_LIBTORCH

// (x - mean) / sqrt(variance + epsilon) of the norm behind hidden layer `layer`, x [n, E, units].
// On the train split the new running statistics are added to `model_state`.
torch::Tensor Normalized(Norm norm, const TorchEvaluation& e, size_t layer, const torch::Tensor& x,
                         std::vector<torch::Tensor>* model_state) {
  const int64_t over = norm == Norm::kLayer ? 2 : 1;
  torch::Tensor mean = x.mean(over, /*keepdim=*/true);
  torch::Tensor variance = x.var(over, /*unbiased=*/false, /*keepdim=*/true);
  if (norm == Norm::kBatch) {
    const torch::Tensor running_mean = e.model_state[2 * layer].unsqueeze(1);
    const torch::Tensor running_variance = e.model_state[2 * layer + 1].unsqueeze(1);
    if (e.split == Split::kTrain) {
      const auto count = static_cast<double>(x.size(1));
      const torch::Tensor unbiased = variance * (count / std::max(count - 1, 1.0));
      const auto moved = [](const torch::Tensor& from, const torch::Tensor& to) {
        return (from + kNormMomentum * (to - from)).squeeze(1);
      };
      model_state->push_back(moved(running_mean, mean));
      model_state->push_back(moved(running_variance, unbiased));
    } else {
      mean = running_mean;
      variance = running_variance;
    }
  }
  return (x - mean) * torch::rsqrt(variance + kNormEpsilon);
}

torch::Tensor MlpLogits(const ImageMlpOptions& options, const TorchEvaluation& e, torch::Tensor x,
                        std::vector<torch::Tensor>* model_state) {
  size_t p = 0;
  const auto next = [&] { return e.params[p++]; };
  for (size_t layer = 0;; ++layer) {
    const torch::Tensor weight = next();
    x = torch::baddbmm(next().unsqueeze(1), x, weight);
    if (layer == options.hidden.size()) return x;
    if (options.norm != Norm::kNone) {
      const torch::Tensor scale = next().unsqueeze(1);
      x = Normalized(options.norm, e, layer, x, model_state) * scale + next().unsqueeze(1);
    }
    x = Activate(options.activation, x);
  }
}

std::shared_ptr<const TaskFamily> MakeImageMlp(const ImageMlpOptions& options,
                                               const TaskResources& resources) {
  const auto data = GetImages(options.images, resources);
  return MakePartner("ImageMLP", std::make_shared<ImageMlp>(options, data), options.images,
                     options.augment, data,
                     [options](const TorchEvaluation& e, const ImageTensors& images,
                               std::vector<torch::Tensor>* model_state) {
                       return MlpLogits(options, e, images.Images(e.examples), model_state);
                     });
}

#endif

}  // namespace
}  // namespace lopt

LOPT_TORCH_TASK(image_mlp, ImageMlpOptions, "TorchImageMLP",
                "ImageMLP computed by LibTorch with autograd; needs the torch module.",
                MakeImageMlp)
