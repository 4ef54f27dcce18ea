#include "lopt/tasks/image/image_conv.h"

#include "lopt/torch/task_type.h"
#ifdef LOPT_LIBTORCH
#include <algorithm>

#include "lopt/torch/activate.h"
#include "lopt/torch/image_layers.h"
#include "lopt/torch/image_twin.h"
#endif

namespace lopt {
namespace {

#ifdef LOPT_LIBTORCH

torch::Tensor PoolPairs(Pool pool, const torch::Tensor& images) {
  const auto size = [&](int64_t dimension) { return images.size(dimension) == 1 ? 1 : 2; };
  switch (pool) {
    case Pool::kNone:
      return images;
    case Pool::kMax:
      return torch::max_pool2d(images, {size(2), size(3)});
    case Pool::kAverage:
      return torch::avg_pool2d(images, {size(2), size(3)});
  }
  return images;
}

torch::Tensor ConvLogits(const ImageConvOptions& options, const TorchEvaluation& e,
                         torch::Tensor x) {
  size_t p = 0;
  for (size_t l = 0; l < options.channels.size(); ++l, p += 2) {
    const torch::Tensor weight = e.params[p].permute({0, 4, 3, 1, 2});
    x = SameConvolution(x, {weight, e.params[p + 1]},
                        options.strides[std::min(l, options.strides.size() - 1)]);
    x = PoolPairs(options.pool, Activate(options.activation, x));
  }
  x = ByReplica(x, e.examples.size(0));
  x = options.head == ConvHead::kMean ? x.mean({3, 4}) : x.permute({0, 1, 3, 4, 2}).flatten(2);
  return torch::baddbmm(e.params[p + 1].unsqueeze(1), x, e.params[p]);
}

std::shared_ptr<const TaskFamily> MakeImageConv(const ImageConvOptions& options,
                                                const TaskResources& resources) {
  const auto data = GetImages(options.images, resources);
  return MakePartner("ImageConv", std::make_shared<ImageConv>(options, data), options.images,
                     options.augment, data,
                     [options, height = data->height(), width = data->width()](
                         const TorchEvaluation& e, const ImageTensors& images,
                         std::vector<torch::Tensor>* /*model_state*/) {
                       return ConvLogits(options, e,
                                         SideBySide(images.Images(e.examples), height, width));
                     });
}

#endif

}  // namespace
}  // namespace lopt

LOPT_TORCH_TASK(image_conv, ImageConvOptions, "TorchImageConv",
                "ImageConv computed by LibTorch with autograd; needs the torch module.",
                MakeImageConv)
