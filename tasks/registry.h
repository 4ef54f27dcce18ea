#pragma once

#include <memory>
#include <string>

#include "base/registry.h"
#include "tasks/task_family.h"

namespace lopt {

class ImageStore;

// What tasks are made from besides their config.
struct TaskResources {
  std::string data_dir;  // where "data": "default" and "idx" find IDX files; may be empty
  std::shared_ptr<ImageStore> images;  // loaded images, shared by the tasks of a run; never null
};

// A fresh store, nothing loaded.
TaskResources MakeTaskResources(std::string data_dir);

// The task families, built-in ones included.
Registry<TaskFamily, const TaskResources&>& TaskRegistry();

}  // namespace lopt
