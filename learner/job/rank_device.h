#pragma once

#include <string>
#include <vector>

#include "lopt/base/device.h"

namespace lopt {

// What the windows of one rank of a job run on: the device of this name, null for "cpu"; of "cuda"
// one of `gpus`, by their numbers, which the ranks of a host take in turn, or of all GPUs there if
// none is named. `place_on_host` is the rank's among those of its host, from 0 on. Throws Error as
// FindDevice does, and if `gpus` are named and the device is not "cuda".
const Device* DeviceOfRank(const std::string& name, const std::vector<int>& gpus,
                           int place_on_host);

}  // namespace lopt
