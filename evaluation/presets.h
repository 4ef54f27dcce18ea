#pragma once

#include "lopt/base/presets.h"

namespace lopt {

// Those of evaluations: evaluation/presets/*.json.
const Presets& EvaluationPresets();

}  // namespace lopt
