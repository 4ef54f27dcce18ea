#pragma once

#include "lopt/base/registry.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tasks/task_resources.h"

namespace lopt {

// A registry of task families; they are made with the data of a run.
using TaskTypes = Registry<TaskFamily, const TaskResources&>;

// The task families, built-in ones included.
TaskTypes& TaskRegistry();

}  // namespace lopt
