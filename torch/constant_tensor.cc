#include "lopt/torch/constant_tensor.h"

#include <utility>

namespace lopt {

ConstantTensor::ConstantTensor(torch::Tensor values) : copies_(std::make_shared<Copies>()) {
  copies_->tensors.push_back(std::move(values));
}

torch::Tensor ConstantTensor::On(torch::Device device) const {
  const std::lock_guard lock(copies_->mutex);
  for (const torch::Tensor& tensor : copies_->tensors) {
    if (tensor.device() == device) return tensor;
  }
  copies_->tensors.push_back(copies_->tensors.front().to(device));
  return copies_->tensors.back();
}

}  // namespace lopt
