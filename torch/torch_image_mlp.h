#pragma once

#include <memory>

#include "tasks/image_mlp.h"
#include "tasks/registry.h"

namespace lopt {

// The image MLP written with torch tensors: the same params layout, initial params, batches, losses
// and accuracy as ImageMlp of the same options and data, gradients by autograd. Throws Error as
// ImageMlp does.
std::shared_ptr<const TaskFamily> MakeTorchImageMlp(const ImageMlpOptions& options,
                                                    std::shared_ptr<const ImageData> data);

// The version of LibTorch in use: "1.13.1".
const char* TorchVersion();

}  // namespace lopt
