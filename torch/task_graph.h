#pragma once

#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/tensorboard.h"
#include "lopt/tasks/task_resources.h"

namespace lopt {

// TorchTaskFamily::Graph of a task of the module. Throws Error also if it has none.
std::vector<GraphNode> TorchTaskGraph(const Config& task, const TaskResources& resources);

}  // namespace lopt
