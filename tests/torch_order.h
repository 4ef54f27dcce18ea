#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace lopt {

// A tensor [spatial..., in, out] as torch has it, [out, in, spatial...], contiguous; tensors of
// fewer than two axes as they are.
inline torch::Tensor InTorchOrder(const torch::Tensor& tensor) {
  if (tensor.dim() < 2) return tensor;
  std::vector<int64_t> axes = {tensor.dim() - 1, tensor.dim() - 2};
  for (int64_t axis = 0; axis < tensor.dim() - 2; ++axis) axes.push_back(axis);
  return tensor.permute(axes).contiguous();
}

// The inverse: a tensor [out, in, spatial...] as [spatial..., in, out], contiguous.
inline torch::Tensor InRuleOrder(const torch::Tensor& tensor) {
  if (tensor.dim() < 2) return tensor;
  std::vector<int64_t> axes;
  for (int64_t axis = 2; axis < tensor.dim(); ++axis) axes.push_back(axis);
  axes.insert(axes.end(), {1, 0});
  return tensor.permute(axes).contiguous();
}

}  // namespace lopt
