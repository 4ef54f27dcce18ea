#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"

namespace lopt {

// A complete experiment under a name.
struct Preset {
  std::string name;
  std::string summary;
  std::string json;
};

const std::vector<Preset>& Presets();

// The config of a preset. Throws Error that lists the presets if there is none of this name.
Config PresetConfig(std::string_view name);

}  // namespace lopt
