#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/tensorboard.h"
#include "lopt/tasks/task_resources.h"

namespace lopt {

// The graphs of the torch tasks in these configs, each in the box of its name; one that several
// have is there once. A graph that cannot be made, or is too large to be looked at, is logged: no
// run ends for it.
std::vector<GraphNode> TaskGraphs(const std::vector<std::pair<std::string, Config>>& named,
                                  const TaskResources& resources);

}  // namespace lopt
