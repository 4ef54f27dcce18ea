#include "lopt/learner/meta_train_presets.h"

namespace lopt {
namespace {

constexpr EmbeddedFile kPresetFiles[] = {
#include "lopt/learner/presets.inc"
};

}  // namespace

std::span<const EmbeddedFile> MetaTrainPresetFiles() { return kPresetFiles; }

const Presets& MetaTrainPresets() {
  static const Presets presets("preset", kPresetFiles);
  return presets;
}

}  // namespace lopt
