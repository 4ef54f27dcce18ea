#pragma once

#include <optional>

#include "base/device.h"
#include "tasks/quadratic_device.h"
#include "tasks/task_family.h"

namespace lopt {

// What a device's functions take of a family, each for its own type of families; nothing for
// others. Throw Error that names the option if one of the family has no device functions.
std::optional<QuadraticDevice::Args> QuadraticArgs(const TaskFamily& family);

}  // namespace lopt
