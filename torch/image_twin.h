#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/tasks/image/image_task.h"
#include "lopt/torch/image_tensors.h"
#include "lopt/torch/torch_task.h"

namespace lopt {

// Logits [n, E, classes] of the examples of n replicas. On the train split the new model state, if
// there is one, is added to the vector.
using LogitsFunction = std::function<torch::Tensor(const TorchEvaluation&, const ImageTensors&,
                                                   std::vector<torch::Tensor>* model_state)>;

// The classifier `native` of images computed by LibTorch: the layouts of its params and model
// state, their start, batches, losses and accuracy, gradients by autograd. `type` is its type's
// name, for messages. Throws Error if it augments its images.
std::shared_ptr<const TaskFamily> MakePartner(const std::string& type,
                                              std::shared_ptr<const TaskFamily> native,
                                              const ImageOptions& images, const Config& augment,
                                              const std::shared_ptr<const ImageData>& data,
                                              LogitsFunction logits);

}  // namespace lopt
