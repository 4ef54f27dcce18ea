#pragma once

#include <cstdint>
#include <optional>

#include "base/device.h"
#include "base/layout.h"
#include "lopt/adafac_mlp_lopt_device.h"
#include "lopt/celo2_device.h"
#include "lopt/learned_optimizer.h"
#include "lopt/mlp_lopt_device.h"

namespace lopt {

// What a device's functions take of an optimizer for params of a layout, each for its own type of
// optimizers; nothing for others. `constants` keeps what they point to. Throw Error that names the
// option if one of the optimizer has no device functions. `group` is kGroup of the functions that
// they are for.

std::optional<MlpLoptArgs> MlpLoptArgsOf(const LearnedOptimizer& optimizer, const Layout& params,
                                         int group, DeviceConstants* constants);
std::optional<AdafacArgs> AdafacArgsOf(const LearnedOptimizer& optimizer, const Layout& params,
                                       int group, DeviceConstants* constants);
std::optional<Celo2Args> Celo2ArgsOf(const LearnedOptimizer& optimizer, const Layout& params,
                                     int group, DeviceConstants* constants);

}  // namespace lopt
