#include "lopt/evaluation/presets.h"

namespace lopt {
namespace {

constexpr EmbeddedFile kPresetFiles[] = {
#include "lopt/evaluation/presets.inc"
};

}  // namespace

const Presets& EvaluationPresets() {
  static const Presets presets("evaluation preset", kPresetFiles);
  return presets;
}

}  // namespace lopt
