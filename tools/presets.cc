#include "tools/presets.h"

namespace lopt {
namespace {

constexpr PresetFile kFiles[] = {
#include "tools/presets.inc"
};

}  // namespace

const Presets& MetaTrainPresets() {
  static const Presets presets("preset", kFiles);
  return presets;
}

}  // namespace lopt
