#pragma once

#include <optional>

#include "lopt/base/device.h"
#include "lopt/tasks/data/data_rows_device.h"
#include "lopt/tasks/image/image_mlp_device.h"
#include "lopt/tasks/quadratic/quadratic_device.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// What a device's functions take of a family, each for its own type of families; nothing for
// others. `constants` keeps what they point to. Throw Error that names the option if one of the
// family has no device functions.
std::optional<QuadraticDevice::Args> QuadraticArgs(const TaskFamily& family);
// `room`: floats of scratch memory; a batch is cut into chunks of examples that do not need more,
// if chunks of four do not.
std::optional<ImageMlpDevice::Args> ImageMlpArgs(const TaskFamily& family, int64_t room,
                                                 DeviceConstants* constants);

// Throws Error if a split has no rows.
DeviceRows DeviceRowsOf(const DataRows& data);

}  // namespace lopt
