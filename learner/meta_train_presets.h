#pragma once

#include "lopt/base/presets.h"

namespace lopt {

// Those of meta-training: learner/presets/*.json.
const Presets& MetaTrainPresets();

}  // namespace lopt
