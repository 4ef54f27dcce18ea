#pragma once

#include <memory>
#include <string>

#include "lopt/base/config.h"
#include "lopt/base/device.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// A task, or why it cannot be had on this machine's device.
struct TaskOnDevice {
  std::shared_ptr<const TaskFamily> task = nullptr;
  std::string left_out = "";  // where the task is null
};

// A task without data files. A torch task needs the torch module, and CUDA in its LibTorch for a
// GPU; others are made, or throw Error.
TaskOnDevice MakeTaskOnDevice(const std::string& config, const Device& device);

}  // namespace lopt
