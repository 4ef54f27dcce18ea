#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>

#include "base/config.h"
#include "tasks/image_task.h"
#include "torch/image_tensors.h"
#include "torch/torch_task.h"

namespace lopt {

// Logits [n, E, classes] of the examples of n replicas.
using LogitsFunction = std::function<torch::Tensor(const TorchEvaluation&, const ImageTensors&)>;

// The classifier `native` of images computed by LibTorch: its params layout, initial params,
// batches, losses and accuracy, gradients by autograd. `type` is its type's name, for messages.
// Throws Error if it augments its images.
std::shared_ptr<const TaskFamily> MakeTwin(const std::string& type,
                                           std::shared_ptr<const TaskFamily> native,
                                           const ImageOptions& images, const Config& augment,
                                           const std::shared_ptr<const ImageData>& data,
                                           LogitsFunction logits);

}  // namespace lopt
