#include "tools/presets.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace lopt {

namespace {

// A truncated PES estimator with episodes of a length drawn from [min_length, max_length).
struct Pes {
  std::string task = {};
  int num_tasks = 1;
  int trunc_length = 50;
  double std = 0.02;
  int min_length = 100;
  int max_length = 400;
  std::string meta_loss = "before_update";
  double weight = 1;

  std::string Json() const {
    return fmt::format(R"(
    {{"type": "TruncatedPES",
     "task": {},
     "num_tasks": {}, "trunc_length": {}, "std": {}, "meta_loss": "{}", "weight": {},
     "schedule": {{"type": "LogUniformLengthSchedule", "min_length": {}, "max_length": {}}},
     "random_initial_iteration_offset": {}}})",
                       task, num_tasks, trunc_length, std, meta_loss, weight, min_length,
                       max_length, max_length);
  }
};

std::string Join(const std::vector<Pes>& estimators) {
  std::vector<std::string> texts;
  for (const Pes& estimator : estimators) texts.push_back(estimator.Json());
  return fmt::format("{}", fmt::join(texts, ","));
}

// The JSON of an 8x8 image MLP; `more` are further keys, with a comma before them.
std::string ImageMlp(const std::string& hidden, int batch_size, const std::string& more = "") {
  return fmt::format(R"({{"type": "ImageMLP", "image_size": 8, "hidden": {}, "batch_size": {}{}}})",
                     hidden, batch_size, more);
}

constexpr const char* kQuadratic = R"({"type": "FixedDimQuadraticFamily", "dim": 10})";

// Two estimators, one over small quadratics, one over image MLPs.
std::string TutorialJson(const std::string& name, int num_tasks, int trunc_length, int min_length,
                         int max_length, int meta_steps) {
  Pes pes{.task = kQuadratic,
          .num_tasks = num_tasks,
          .trunc_length = trunc_length,
          .std = 0.01,
          .min_length = min_length,
          .max_length = max_length};
  std::vector<Pes> estimators = {pes};
  pes.task = ImageMlp("[32]", 128);
  estimators.push_back(pes);
  return fmt::format(R"({{
  "name": "{}",
  "learned_optimizer": {{"type": "MLPLOpt"}},
  "theta_opt": {{"type": "Adam", "learning_rate": 1e-3}},
  "estimators": [{}
  ],
  "meta_steps": {}
}}
)",
                     name, Join(estimators), meta_steps);
}

// What `fast` and `recommended` have in common: a learned optimizer whose second output is a strong
// exponent, and AdamW with clipping, warm-up and cosine decay over the whole run.
std::string TunedJson(const std::string& name, double step_mult, int meta_steps,
                      const std::vector<Pes>& estimators) {
  return fmt::format(R"({{
  "name": "{}",
  "learned_optimizer": {{"type": "MLPLOpt", "hidden_size": 16, "exp_mult": 0.5, "step_mult": {}}},
  "theta_opt": {{"type": "AdamW", "learning_rate": 3e-3, "weight_decay": 0, "clip_by_global_norm": 1,
                "schedule": {{"type": "WarmupCosine", "warmup_steps": 100, "total_steps": {}, "final_scale": 0.03}}}},
  "estimators": [{}
  ],
  "meta_steps": {}, "metrics_steps": 10
}}
)",
                     name, step_mult, meta_steps, Join(estimators), meta_steps);
}

constexpr const char* kOuterValid = "outer_valid";

std::string FastJson() {
  const std::string task = ImageMlp("[32]", 128);
  return TunedJson(
      "fast", 0.01, 12000,
      {{.task = task, .num_tasks = 2}, {.task = task, .num_tasks = 2, .meta_loss = kOuterValid}});
}

// Ten kinds of image MLPs and a quadratic. Most are judged on data that they are not trained on.
// Weights bring the estimators' gradients to like norms; without them the inverted images and the
// quadratic drown the rest.
std::string RecommendedJson() {
  const auto valid = [](const std::string& task, double weight) {
    return Pes{.task = task, .meta_loss = kOuterValid, .weight = weight};
  };
  return TunedJson("recommended", 0.003, 20000,
                   {{.task = ImageMlp("[32]", 128), .min_length = 30},
                    valid(ImageMlp("[32]", 128), 1),
                    {.task = ImageMlp("[32]", 64),
                     .min_length = 400,
                     .max_length = 3000,
                     .meta_loss = kOuterValid,
                     .weight = 0.5},
                    valid(ImageMlp("[32]", 16), 0.6),
                    {.task = ImageMlp("[16, 16, 16]", 64), .weight = 0.5},
                    valid(ImageMlp("[16]", 64, R"(, "activation": "tanh")"), 1),
                    {.task = ImageMlp("[16]", 128, R"(, "distortion": "inverted")"), .weight = 0.2},
                    valid(ImageMlp("[32]", 64, R"(, "distortion": "mislabeled")"), 1),
                    {.task = ImageMlp("[]", 128), .min_length = 50, .meta_loss = kOuterValid},
                    valid(ImageMlp("[64]", 32, R"(, "distortion": "noisy")"), 0.8),
                    {.task = kQuadratic, .num_tasks = 2, .min_length = 50, .weight = 0.01}});
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
