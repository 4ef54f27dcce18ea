#pragma once

#include <cstdint>
#include <optional>

#include "lopt/base/device.h"
#include "lopt/base/layout.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt_device.h"
#include "lopt/lopt/celo2/celo2_device.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/mlp/mlp_lopt_device.h"

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
