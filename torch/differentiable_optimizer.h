#pragma once

#include <memory>

#include "lopt/tasks/derivatives.h"

namespace lopt {

// The update rule that a script defines (lopt/use/torch_script.h), differentiated by autograd. Each
// tensor is a problem of its own; a tensor's state has one entry in the state's layout, of its name
// and the shape that init_state gives. Throws Error if the script does not compile.
std::shared_ptr<const DifferentiableOptimizer> TorchDifferentiableOptimizer(
    const ScriptModule& script);

}  // namespace lopt
