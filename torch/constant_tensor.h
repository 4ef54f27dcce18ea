#pragma once

#include <torch/types.h>

#include <memory>
#include <mutex>
#include <vector>

namespace lopt {

// Numbers that evaluations read, on each device that they are on. Cheap to copy; thread-safe.
class ConstantTensor {
 public:
  // `values` are on the host.
  explicit ConstantTensor(torch::Tensor values);

  // The values there, copied when they are first asked for.
  torch::Tensor On(torch::Device device) const;

 private:
  struct Copies {
    std::mutex mutex;
    std::vector<torch::Tensor> tensors;  // one for each device that was asked for
  };

  std::shared_ptr<Copies> copies_;
};

}  // namespace lopt
