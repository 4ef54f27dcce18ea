#pragma once

#include <span>
#include <string>

#include "lopt/base/arrays.h"
#include "lopt/base/script_module.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// A trained classifier of images for programs that have PyTorch but not this project. Its tensors
// have PyTorch's layouts: linear layers [out, in], convolutions [out, in, height, width], inputs of
// a linear layer behind images in the order [channel, height, width]. Their names are
// linear_<l>.weight and .bias, and norm_<l>.weight, .bias, .running_mean and .running_var, of an
// ImageMLP; conv_<l>.weight and .bias, linear.weight and .bias of an ImageConv.
struct TorchModel {
  // forward(images: Tensor [n, channels, height, width]) -> Tensor, the logits [n, classes].
  ScriptModule module;
  std::string input;  // what its images are, in words
};

// The model of an ImageMlp or ImageConv with these params [P] and model state [M]. Throws Error if
// the task, whose type is `type`, is none, or if its augmentation changes the images of every
// split, which the model would not.
TorchModel MakeTorchModel(const std::string& type, const TaskFamily& task,
                          std::span<const float> params, std::span<const float> model_state);

// The parameters and buffers of a module and those inside, by the names of PyTorch's state_dict().
NamedArrays StateDict(const ScriptModule& module);

}  // namespace lopt
