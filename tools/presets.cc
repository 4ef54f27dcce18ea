#include "tools/presets.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace lopt {

namespace {

// One truncated PES estimator; `more` are further keys, each with a comma before it.
std::string Pes(const std::string& task, int num_tasks, int trunc_length, double std,
                const std::string& schedule, int offset, const std::string& more = "") {
  return fmt::format(R"(
    {{"type": "TruncatedPES",
     "task": {},
     "num_tasks": {}, "trunc_length": {}, "std": {},
     "schedule": {},
     "random_initial_iteration_offset": {}{}}})",
                     task, num_tasks, trunc_length, std, schedule, offset, more);
}

std::string LogUniform(int min_length, int max_length) {
  return fmt::format(
      R"({{"type": "LogUniformLengthSchedule", "min_length": {}, "max_length": {}}})", min_length,
      max_length);
}

constexpr const char* kQuadratic = R"({"type": "FixedDimQuadraticFamily", "dim": 10})";
constexpr const char* kImageMlp =
    R"({"type": "ImageMLP", "image_size": 8, "hidden": [32], "batch_size": 128})";

// Two estimators, one over small quadratics, one over image MLPs.
std::string TutorialJson(const std::string& name, int num_tasks, int trunc_length, int min_length,
                         int max_length, int meta_steps) {
  const std::string lengths = LogUniform(min_length, max_length);
  const auto estimator = [&](const char* task) {
    return Pes(task, num_tasks, trunc_length, 0.01, lengths, max_length);
  };
  return fmt::format(R"({{
  "name": "{}",
  "learned_optimizer": {{"type": "MLPLOpt"}},
  "theta_opt": {{"type": "Adam", "learning_rate": 1e-3}},
  "estimators": [{},{}
  ],
  "meta_steps": {}
}}
)",
                     name, estimator(kQuadratic), estimator(kImageMlp), meta_steps);
}

// What `fast` and `recommended` have in common: a learned optimizer whose second output is a strong
// exponent, and AdamW with clipping, warm-up and cosine decay over the whole run.
std::string TunedJson(const std::string& name, int hidden_size, double step_mult, int meta_steps,
                      const std::vector<std::string>& estimators) {
  return fmt::format(R"({{
  "name": "{}",
  "learned_optimizer": {{"type": "MLPLOpt", "hidden_size": {}, "exp_mult": 0.5, "step_mult": {}}},
  "theta_opt": {{"type": "AdamW", "learning_rate": 3e-3, "weight_decay": 0, "clip_by_global_norm": 1,
                "schedule": {{"type": "WarmupCosine", "warmup_steps": 100, "total_steps": {}, "final_scale": 0.03}}}},
  "estimators": [{}
  ],
  "meta_steps": {}, "metrics_steps": 10
}}
)",
                     name, hidden_size, step_mult, meta_steps, fmt::join(estimators, ","),
                     meta_steps);
}

constexpr const char* kJudgedOnValid = R"(, "meta_loss": "outer_valid")";

std::string FastJson() {
  const std::string lengths = LogUniform(100, 400);
  return TunedJson("fast", 16, 0.01, 12000,
                   {Pes(kImageMlp, 2, 50, 0.02, lengths, 400),
                    Pes(kImageMlp, 2, 50, 0.02, lengths, 400, kJudgedOnValid)});
}

// An 8x8 image MLP.
std::string ImageMlp(const std::string& hidden, int batch_size, const std::string& more = "") {
  return fmt::format(R"({{"type": "ImageMLP", "image_size": 8, "hidden": {}, "batch_size": {}{}}})",
                     hidden, batch_size, more);
}

// Ten kinds of image MLPs and a quadratic. Most are judged on data that they are not trained on;
// the quadratic's larger losses get a smaller weight.
std::string RecommendedJson() {
  const std::string lengths = LogUniform(100, 400);
  const auto judged_on_valid = [&](const std::string& task) {
    return Pes(task, 1, 50, 0.02, lengths, 400, kJudgedOnValid);
  };
  return TunedJson(
      "recommended", 16, 0.003, 44000,
      {Pes(kImageMlp, 1, 50, 0.02, LogUniform(20, 400), 400), judged_on_valid(kImageMlp),
       Pes(ImageMlp("[32]", 64), 2, 50, 0.02, LogUniform(400, 3000), 3000, kJudgedOnValid),
       judged_on_valid(ImageMlp("[32]", 16)),
       Pes(ImageMlp("[16, 16, 16]", 64), 1, 50, 0.02, lengths, 400),
       judged_on_valid(ImageMlp("[16]", 64, R"(, "activation": "tanh")")),
       Pes(ImageMlp("[16]", 128, R"(, "distortion": "inverted")"), 1, 50, 0.02, lengths, 400),
       judged_on_valid(ImageMlp("[32]", 64, R"(, "distortion": "mislabeled")")),
       judged_on_valid(ImageMlp("[]", 128)),
       judged_on_valid(ImageMlp("[64]", 32, R"(, "distortion": "noisy")")),
       Pes(kQuadratic, 2, 50, 0.02, LogUniform(50, 400), 400, R"(, "weight": 0.1)")});
}

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
       TutorialJson("tutorial", 4, 50, 100, 300, 500)},
      {"tutorial-16", "The same with 16 tasks each.",
       TutorialJson("tutorial-16", 16, 50, 100, 300, 500)},
      {"full-es", "Full ES on the same tasks, 4 each, 500 updates.", kFullEs},
      {"fast",
       "Two minutes on two cores: an optimizer for the 8x8 image MLP that beats tuned Adam there.",
       FastJson()},
      {"recommended",
       "A quarter of an hour on two cores: an optimizer for many widths, depths, batch sizes, "
       "data.",
       RecommendedJson()},
      {"smoke", "The tutorial cut down to seconds: short windows and episodes, 20 updates.",
       TutorialJson("smoke", 2, 10, 10, 30, 20)}};
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
