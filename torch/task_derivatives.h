#pragma once

#include <memory>

#include "lopt/tasks/derivatives.h"

namespace lopt {

// What MakeTaskDerivatives promises, of the types that TypesWithDerivatives() lists: a torch task
// itself, or the torch counterpart of a native one.
std::shared_ptr<const TaskDerivatives> TorchTaskDerivatives(const Config& task,
                                                            const TaskResources& resources);

}  // namespace lopt
