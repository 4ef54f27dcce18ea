#pragma once

#include <torch/types.h>

#include <memory>

#include "lopt/tasks/data/image_data.h"
#include "lopt/torch/constant_tensor.h"
#include "lopt/torch/torch_task.h"

namespace lopt {

// A data set of images for tasks written with torch tensors. Cheap to copy.
class ImageTensors {
 public:
  explicit ImageTensors(std::shared_ptr<const ImageData> data);

  // The images in these rows of the data set (examples [...], int64): float32 [..., features], on
  // the device of the examples, as are the labels.
  torch::Tensor Images(const torch::Tensor& examples) const;
  // Their labels: int64 [...].
  torch::Tensor Labels(const torch::Tensor& examples) const;

 private:
  std::shared_ptr<const ImageData> data_;
  ConstantTensor images_;  // [count, features], on the host a view of the data
  ConstantTensor labels_;  // [count]
};

// Shows the images of a replica's examples, "batch".
TorchTaskFamily::ShowFunction ShowBatch(std::shared_ptr<const ImageData> data);

// The mean softmax cross-entropy over the examples of each replica, and as the one aux output,
// where it is wanted, the fraction of them whose label has the largest logit; an example with a
// logit that is not a number is not right. logits [..., examples, classes], labels [..., examples];
// both are in the result as well.
TorchLoss ClassifierLoss(const torch::Tensor& logits, const torch::Tensor& labels, bool aux_wanted);

}  // namespace lopt
