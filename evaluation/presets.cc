#include "lopt/evaluation/presets.h"

namespace lopt {
namespace {

constexpr EmbeddedFile kPresetFiles[] = {
#include "lopt/evaluation/presets.inc"
};

}  // namespace

std::span<const EmbeddedFile> EvaluationPresetFiles() { return kPresetFiles; }

const Presets& EvaluationPresets() {
  static const Presets presets("evaluation preset", kPresetFiles);
  return presets;
}

}  // namespace lopt
