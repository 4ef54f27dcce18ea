#include "evaluation/presets.h"

namespace lopt {
namespace {

constexpr PresetFile kFiles[] = {
#include "evaluation/presets.inc"
};

}  // namespace

const Presets& EvaluationPresets() {
  static const Presets presets("evaluation preset", kFiles);
  return presets;
}

}  // namespace lopt
