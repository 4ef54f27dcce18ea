#pragma once

#include <span>

#include "lopt/base/presets.h"

namespace lopt {

// Those of meta-training: learner/presets/*.json.
const Presets& MetaTrainPresets();
// Their files, with comments.
std::span<const EmbeddedFile> MetaTrainPresetFiles();

}  // namespace lopt
