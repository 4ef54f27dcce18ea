#include "lopt/learner/meta_train_presets.h"

namespace lopt {
namespace {

constexpr EmbeddedFile kPresetFiles[] = {
#include "lopt/learner/presets.inc"
};

}  // namespace

const Presets& MetaTrainPresets() {
  static const Presets presets("preset", kPresetFiles);
  return presets;
}

}  // namespace lopt
