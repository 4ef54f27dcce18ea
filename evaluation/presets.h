#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evaluation/evaluation_config.h"

namespace lopt {

// A complete evaluation under a name.
struct EvaluationPreset {
  std::string name;
  std::string summary;
  std::string json;
};

const std::vector<EvaluationPreset>& EvaluationPresets();

// Throws Error that lists the presets if there is none of this name.
EvaluationConfig PresetEvaluation(std::string_view name);

}  // namespace lopt
