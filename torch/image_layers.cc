#include "lopt/torch/image_layers.h"

#include <cmath>

#include "lopt/tasks/image/image_conv_problem.h"

namespace lopt {
namespace {

// [n, out, ...] -> [n out, ...].
torch::Tensor Groups(const torch::Tensor& tensor) { return tensor.flatten(0, 1); }

}  // namespace

torch::Tensor SideBySide(const torch::Tensor& images, int64_t height, int64_t width) {
  return images.view({images.size(0), images.size(1), height, width, -1})
      .permute({1, 0, 4, 2, 3})
      .flatten(1, 2)
      .contiguous();
}

torch::Tensor ByReplica(const torch::Tensor& images, int64_t n) {
  return images.view({images.size(0), n, -1, images.size(2), images.size(3)}).transpose(0, 1);
}

torch::Tensor Linear(const torch::Tensor& x, const ReplicaWeights& w) {
  return torch::baddbmm(w.bias.unsqueeze(1), x, w.weight.transpose(1, 2));
}

torch::Tensor Convolution(const torch::Tensor& images, const ReplicaWeights& w,
                          torch::IntArrayRef stride, torch::IntArrayRef padding) {
  return torch::conv2d(images, Groups(w.weight), Groups(w.bias), stride, padding, /*dilation=*/1,
                       /*groups=*/w.weight.size(0));
}

torch::Tensor SameConvolution(const torch::Tensor& images, const ReplicaWeights& w,
                              int64_t stride) {
  int64_t before[2];
  int64_t after[2];
  for (int64_t d = 0; d < 2; ++d) {
    const SameWindow window{images.size(2 + d), w.weight.size(3 + d), stride};
    before[d] = window.low();
    after[d] = window.padded() - window.size - window.low();
  }
  if (before[0] == after[0] && before[1] == after[1]) return Convolution(images, w, stride, before);
  const torch::Tensor padded =
      torch::constant_pad_nd(images, {before[1], after[1], before[0], after[0]});
  return Convolution(padded, w, stride, /*padding=*/0);
}

torch::Tensor TransposedConvolution(const torch::Tensor& images, const ReplicaWeights& w,
                                    torch::IntArrayRef stride, torch::IntArrayRef padding,
                                    torch::IntArrayRef output_padding) {
  return torch::conv_transpose2d(images, Groups(w.weight), Groups(w.bias), stride, padding,
                                 output_padding, /*groups=*/w.weight.size(0));
}

torch::Tensor SampleAffine(const torch::Tensor& images, const torch::Tensor& theta,
                           bool align_corners) {
  constexpr int64_t kBilinear = 0;
  constexpr int64_t kZeros = 0;
  const torch::Tensor grid = torch::affine_grid_generator(theta, images.sizes(), align_corners);
  return torch::grid_sampler(images, grid, kBilinear, kZeros, align_corners);
}

void AddLayer(const std::string& name, torch::IntArrayRef weight, int64_t out, Key key,
              NamedTensors* params) {
  const auto fan_in = static_cast<double>(c10::multiply_integers(weight.slice(1)));
  for (const auto& [tensor, shape] :
       {std::pair("/weight", weight), std::pair("/bias", torch::IntArrayRef(out))}) {
    const torch::Tensor uniform = UniformTensor(FoldIn(key, params->size()), shape);
    params->emplace_back(name + tensor, (2 * uniform - 1) / std::sqrt(fan_in));
  }
}

}  // namespace lopt
