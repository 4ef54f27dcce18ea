#include "tools/presets.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace lopt {

namespace {

// Two truncated PES estimators, one over small quadratics, one over image MLPs.
std::string TruncatedPesJson(const std::string& name, int num_tasks, int trunc_length,
                             const std::string& schedule, int offset, int meta_steps) {
  const std::string estimator = fmt::format(
      R"("num_tasks": {}, "trunc_length": {}, "std": 0.01,
     "schedule": {},
     "random_initial_iteration_offset": {}}})",
      num_tasks, trunc_length, schedule, offset);
  return fmt::format(R"({{
  "name": "{}",
  "learned_optimizer": {{"type": "MLPLOpt"}},
  "theta_opt": {{"type": "Adam", "learning_rate": 1e-3}},
  "estimators": [
    {{"type": "TruncatedPES",
     "task": {{"type": "FixedDimQuadraticFamily", "dim": 10}},
     {},
    {{"type": "TruncatedPES",
     "task": {{"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 128}},
     {}
  ],
  "meta_steps": {}
}}
)",
                     name, estimator, estimator, meta_steps);
}

constexpr const char* kTutorialLengths =
    R"({"type": "LogUniformLengthSchedule", "min_length": 100, "max_length": 300})";
constexpr const char* kSmokeLengths =
    R"({"type": "LogUniformLengthSchedule", "min_length": 10, "max_length": 30})";

constexpr const char* kFullEs = R"({
  "name": "full-es",
  "learned_optimizer": {"type": "MLPLOpt"},
  "theta_opt": {"type": "Adam", "learning_rate": 1e-3},
  "estimators": [
    {"type": "FullES",
     "task": {"type": "FixedDimQuadraticFamily", "dim": 10},
     "num_tasks": 4, "std": 0.01,
     "schedule": {"type": "LogUniformLengthSchedule", "min_length": 100, "max_length": 300}},
    {"type": "FullES",
     "task": {"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 128},
     "num_tasks": 4, "std": 0.01,
     "schedule": {"type": "LogUniformLengthSchedule", "min_length": 100, "max_length": 300}}
  ],
  "meta_steps": 500
}
)";

}  // namespace

const std::vector<Preset>& Presets() {
  static const std::vector<Preset> presets = {
      {"tutorial", "Truncated PES on quadratics and 8x8 image MLPs, 4 tasks each, 500 updates.",
       TruncatedPesJson("tutorial", 4, 50, kTutorialLengths, 300, 500)},
      {"tutorial-16", "The same with 16 tasks each.",
       TruncatedPesJson("tutorial-16", 16, 50, kTutorialLengths, 300, 500)},
      {"full-es", "Full ES on the same tasks, 4 each, 500 updates.", kFullEs},
      {"smoke", "The tutorial cut down to seconds: short windows and episodes, 20 updates.",
       TruncatedPesJson("smoke", 2, 10, kSmokeLengths, 30, 20)}};
  return presets;
}

Config PresetConfig(std::string_view name) {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) {
    if (preset.name == name) return Config::Parse(preset.json, "preset " + preset.name);
    names.push_back(preset.name);
  }
  Fail("There is no preset '{}'; the presets are {}", name, fmt::join(names, ", "));
}

}  // namespace lopt
