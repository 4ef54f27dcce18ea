#include "evaluation/presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace lopt {
namespace {

constexpr const char* kImageMlp = R"({
  "name": "image-mlp",
  "steps": [300],
  "tasks": {
    "image-mlp": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 128}}
  }
})";

constexpr const char* kSmoke = R"({
  "name": "smoke",
  "steps": [5, 20],
  "seeds": 3,
  "trials": 4,
  "tuning_seeds": 1,
  "tasks": {
    "image-mlp": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [8], "batch_size": 16}},
    "quadratic": {"task": {"type": "FixedDimQuadraticFamily", "dim": 10}, "steps": [20]}
  }
})";

// `base` is the task that optimizers here are mostly trained on; each other task differs from it
// in one way.
constexpr const char* kGeneralization = R"({
  "name": "generalization",
  "steps": [300],
  "tasks": {
    "base": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 128}},
    "width-8": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [8], "batch_size": 128}},
    "width-128": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [128], "batch_size": 128}},
    "depth-0": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [], "batch_size": 128}},
    "depth-3": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [32, 32, 32], "batch_size": 128}},
    "tanh": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 128, "activation": "tanh"}},
    "batch-16": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 16}},
    "batch-512": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 512}},
    "image-16": {"task": {"type": "ImageMLP", "image_size": 16, "hidden": [32], "batch_size": 128}},
    "glyphs": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 128, "data": "glyphs"}},
    "inverted": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 128, "distortion": "inverted"}},
    "mislabeled": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 128, "distortion": "mislabeled"}},
    "quadratic": {"task": {"type": "FixedDimQuadraticFamily", "dim": 10}},
    "horizon-30": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 128}, "steps": [30]},
    "horizon-3000": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 128}, "steps": [3000]}
  }
})";

}  // namespace

const std::vector<EvaluationPreset>& EvaluationPresets() {
  static const std::vector<EvaluationPreset> presets = {
      {"image-mlp", "The 8x8 image MLP with one hidden layer of 32, 300 steps.", kImageMlp},
      {"generalization", "Widths, depths, activations, batch sizes, data, lengths and a quadratic.",
       kGeneralization},
      {"smoke", "Seconds: two small tasks, few steps, seeds and trials.", kSmoke}};
  return presets;
}

EvaluationConfig PresetEvaluation(std::string_view name) {
  std::vector<std::string> names;
  for (const EvaluationPreset& preset : EvaluationPresets()) {
    if (preset.name == name) {
      return ReadEvaluationConfig(Config::Parse(preset.json, "preset " + preset.name));
    }
    names.push_back(preset.name);
  }
  Fail("There is no evaluation preset '{}'; the presets are {}", name, fmt::join(names, ", "));
}

}  // namespace lopt
