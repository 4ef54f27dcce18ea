#pragma once

#include <span>

#include "lopt/base/presets.h"

namespace lopt {

// Those of evaluations: evaluation/presets/*.json.
const Presets& EvaluationPresets();
// Their files, with comments.
std::span<const EmbeddedFile> EvaluationPresetFiles();

}  // namespace lopt
