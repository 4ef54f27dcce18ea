#pragma once

#include "lopt/tasks/registry.h"

namespace lopt {

// The tasks of torch/tasks/, which this program or module makes itself: what the torch module
// exports.
TaskTypes& TorchTaskRegistry();

}  // namespace lopt
