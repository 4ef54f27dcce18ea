#include "lopt/tools/presets.h"

namespace lopt {
namespace {

constexpr EmbeddedFile kPresetFiles[] = {
#include "lopt/tools/presets.inc"
};

}  // namespace

const Presets& MetaTrainPresets() {
  static const Presets presets("preset", kPresetFiles);
  return presets;
}

}  // namespace lopt
