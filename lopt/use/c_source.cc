#include "lopt/lopt/use/c_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/layout.h"
#include "lopt/base/options.h"
#include "lopt/base/presets.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt.h"
#include "lopt/lopt/adafac/adafac_parts.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/network/precision.h"
#include "lopt/lopt/rate_schedule.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/lopt/rules/learned_scheduler.h"

namespace lopt {
namespace {

constexpr EmbeddedFile kCFiles[] = {
#include "lopt/lopt/c_rules.inc"
};

std::string_view CFile(std::string_view name) {
  const auto* const found =
      std::ranges::find_if(kCFiles, [&](const EmbeddedFile& file) { return name == file.name; });
  Require(found != std::end(kCFiles), "C: there is no file {} in lopt/use/c/", name);
  return found->text;
}

// Numbers as C reads them.
std::string InC(double x) { return fmt::format("{}", x); }
std::string InC(float x) {
  const std::string digits = fmt::format("{}", x);
  return digits + (digits.find_first_of(".e") == std::string::npos ? ".0f" : "f");
}

template <class Number>
std::string ListInC(std::span<const Number> numbers, size_t in_a_line, const char* between) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    text += (i == 0 ? "" : i % in_a_line == 0 ? between : ", ") + InC(numbers[i]);
  }
  return text;
}

// A learned optimizer as it is written, innermost rule first.
class CSource {
 public:
  void Define(const std::string& name, const std::string& value) {
    text_ += fmt::format("#define LOPT_{} {}\n", name, value);
  }
  void Define(const std::string& name, int64_t value) { Define(name, std::to_string(value)); }
  // What only the file that has the code needs.
  void BeginConstants() { text_ += "#ifndef LOPT_DECLARE\n"; }
  void EndConstants() { text_ += "#endif\n"; }
  void Schedule(const std::string& name, const RateSchedule& s);
  // The tensors of theta from one on, which are `values`.
  void Tensors(const std::string& name, std::span<const LayoutEntry> entries,
               std::span<const float> values);
  void Numbers(const std::string& name, std::span<const float> values) {
    text_ += fmt::format("static const float lopt_{}[] = {{{}}};\n", name,
                         ListInC(values, kInALine, ",\n    "));
  }
  void Add(std::string_view text) { text_ += fmt::format("\n{}", text); }
  void BeginRule() { text_ += "\n"; }
  // That the file's macros `of` mean those of a rule.
  void DefineRule(const std::string& of, const std::string& rule, const std::string& function) {
    Define(of + "_STATE", "LOPT_" + rule + "_STATE");
    Define(of + "_SCRATCH", "LOPT_" + rule + "_SCRATCH");
    Define(of + "_STEP", "lopt_" + function + "_step");
  }
  const std::string& text() const { return text_; }

 private:
  static constexpr size_t kInALine = 6;

  std::string text_;
};

void CSource::Tensors(const std::string& name, std::span<const LayoutEntry> entries,
                      std::span<const float> values) {
  text_ += fmt::format("static const float lopt_{}[] = {{\n", name);
  for (const LayoutEntry& entry : entries) {
    const auto own = values.subspan(entry.offset - entries.front().offset, entry.size);
    text_ += fmt::format("    /* {} {} */\n    {},\n", entry.name, ToString(entry.shape),
                         ListInC(own, kInALine, ",\n    "));
  }
  text_ += "};\n";
}

const char* ScheduleInC(RateType type) {
  switch (type) {
    case RateType::kConstant:
      return "LOPT_CONSTANT";
    case RateType::kLinear:
      return "LOPT_LINEAR";
    case RateType::kCosine:
      return "LOPT_COSINE";
    case RateType::kWarmup:
      return "LOPT_WARMUP";
    case RateType::kWarmupCosine:
      return "LOPT_WARMUP_COSINE";
    case RateType::kPiecewise:
      return "LOPT_PIECEWISE";
  }
  return "";
}

void CSource::Schedule(const std::string& name, const RateSchedule& s) {
  const auto boundaries = static_cast<size_t>(s.num_boundaries);
  std::vector<double> at(s.boundaries, s.boundaries + boundaries);
  if (at.empty()) at.push_back(0);
  const std::span<const double> scales(s.scales, boundaries + 1);
  text_ += fmt::format(
      "static const lopt_schedule lopt_{} = {{{}, {}, {}, {}, {}, {}, {}, {}, {{{}}}, {{{}}}}};\n",
      name, ScheduleInC(s.type), s.warmup_steps, InC(s.warmup_fraction), InC(s.start_scale),
      s.rises_at_once ? 1 : 0, s.total_steps, InC(s.final_scale), s.num_boundaries,
      ListInC(std::span<const double>(at), kInALine, ", "), ListInC(scales, kInALine, ", "));
}

// A rule that is to be written.
struct RuleToWrite {
  Config config;         // resolved
  const Layout& layout;  // of its theta
  std::span<const float> theta;
  CSource& file;
};

void DefineNetwork(int64_t features, bool progress, int64_t hidden_size, int64_t hidden_layers,
                   double exp_mult, CSource& file) {
  file.BeginRule();
  file.Define("FEATURES", features);
  file.Define("PROGRESS", progress ? 1 : 0);
  file.Define("HIDDEN_SIZE", hidden_size);
  file.Define("HIDDEN_LAYERS", hidden_layers);
  file.Define("EXP_MULT", InC(static_cast<float>(exp_mult)));
}

void WriteMlp(const RuleToWrite& rule) {
  const auto options = ReadOptions<MLPLOptOptions>(rule.config);
  Require(options.precision == Precision::kFloat32,
          "C: an MLPLOpt with precision bf16 cannot be exported; precisions that can: fp32");
  CSource& file = rule.file;
  DefineNetwork(MLPLOpt::kNormalized, options.progress_features, options.hidden_size,
                options.hidden_layers, options.exp_mult, file);
  file.Define("STEP_MULT", InC(options.step_mult));
  file.Define("NORMALIZER_EPSILON", InC(static_cast<float>(options.normalizer_epsilon)));
  file.Define("RELATIVE_STEP", options.relative_step ? 1 : 0);
  file.Define("RELATIVE_TO_PARAMETER", options.relative_to_parameter ? 1 : 0);
  file.BeginConstants();
  file.Schedule("mlp_schedule", options.schedule);
  file.Tensors("weights", rule.layout.entries(), rule.theta);
  file.EndConstants();
  file.Add(CFile("network"));
  file.Add(CFile("mlp_lopt"));
}

void WriteAdafac(const RuleToWrite& rule) {
  const auto options = ReadOptions<AdafacMLPLOptOptions>(rule.config);
  const AdafacFeatures features(options);
  const AdafacDecays decays(options, rule.theta);
  CSource& file = rule.file;
  DefineNetwork(features.count, false, options.hidden_size, options.hidden_layers, options.exp_mult,
                file);
  file.Define("STEP_MULT", InC(static_cast<float>(options.step_mult)));
  file.Define("MOMENTA", features.m);
  file.Define("SQUARES", features.r);
  file.BeginConstants();
  file.Numbers("momentum_decays", decays.momentum);
  file.Numbers("square_decays", decays.rms);
  file.Numbers("moment_decays", decays.adafactor);
  constexpr size_t kOffsets = 3;  // tensors of theta that are in the decays
  const std::span<const LayoutEntry> entries(rule.layout.entries());
  file.Tensors("weights", entries.first(entries.size() - kOffsets), rule.theta);
  file.EndConstants();
  file.Add(CFile("network"));
  file.Add(CFile("adafac_mlp_lopt"));
}

void WriteSGDM(const RuleToWrite& rule) {
  CSource& file = rule.file;
  file.BeginRule();
  file.BeginConstants();
  file.Schedule("sgdm_schedule", ReadOptions<LearnableSGDMOptions>(rule.config).schedule);
  file.Tensors("sgdm_theta", rule.layout.entries(), rule.theta);
  file.EndConstants();
  file.Add(CFile("learnable_sgdm"));
}

void WriteOrthogonal(const RuleToWrite& rule) { rule.file.Add(CFile("orthogonal_steps")); }

void WriteScheduler(const RuleToWrite& rule) {
  const auto options = ReadOptions<LearnedSchedulerOptions>(rule.config);
  CSource& file = rule.file;
  file.Define("SCHEDULER_HIDDEN_SIZE", options.hidden_size);
  file.Define("STEP_SIZE", InC(options.step_size));
  file.Define("SCHEDULER_WEIGHT_DECAY", InC(options.weight_decay));
  file.BeginConstants();
  file.Schedule("scheduler_schedule", options.schedule);
  constexpr size_t kOwn = 4;  // the scheduler's tensors, behind the other rule's
  const std::span<const LayoutEntry> entries(rule.layout.entries());
  const auto own = entries.last(kOwn);
  file.Tensors("scheduler_theta", own, rule.theta.subspan(own.front().offset));
  file.EndConstants();
  file.Add(CFile("learned_scheduler"));
}

struct RuleInC {
  const char* type;
  const char* macro;
  const char* function;
  void (*write)(const RuleToWrite&);
};
constexpr RuleInC kRulesInC[] = {
    {"AdafacMLPLOpt", "ADAFAC", "adafac", WriteAdafac},
    {"LearnableSGDM", "SGDM", "sgdm", WriteSGDM},
    {"LearnedScheduler", "SCHEDULER", "scheduler", WriteScheduler},
    {"MLPLOpt", "MLP", "mlp", WriteMlp},
    {"OrthogonalSteps", "ORTHOGONAL", "orthogonal", WriteOrthogonal},
};

const RuleInC& FindRule(const std::string& type) {
  const auto* const found =
      std::ranges::find_if(kRulesInC, [&](const RuleInC& rule) { return type == rule.type; });
  Require(found != std::end(kRulesInC), "C: a {} cannot be exported; types that can: {}", type,
          fmt::join(TypesWithCSource(), ", "));
  return *found;
}

// The configs of an optimizer and of those that it changes the steps of, the innermost first.
std::vector<Config> FromTheInside(Config config) {
  std::vector<Config> configs;
  std::vector<std::string> types;
  while (true) {
    const std::string type = config.Type();
    FindRule(type);
    Require(std::ranges::find(types, type) == types.end(),
            "C: {} within {} cannot be exported; wanted each type once", fmt::join(types, " of "),
            type);
    types.push_back(type);
    configs.insert(configs.begin(), config);
    const auto inner = config.json().find("optimizer");
    if (inner == config.json().end()) return configs;
    config = Config::FromJson(*inner);
  }
}

// The most boundaries that a schedule of these has, at least 1; 0 if none of them has a schedule.
int64_t MostBoundaries(const std::vector<Config>& configs) {
  int64_t most = 0;
  for (const Config& config : configs) {
    const auto schedule = config.json().find("schedule");
    if (schedule == config.json().end()) continue;
    most = std::max<int64_t>(most, 1);
    if (schedule->contains("boundaries")) {
      most = std::max(most, std::ssize((*schedule)["boundaries"]));
    }
  }
  return most;
}

// What may stand in a comment.
std::string ForComment(std::string text) {
  for (char& c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-' && c != ' ') {
      c = '_';
    }
  }
  return text;
}

std::string Filled(std::string text, const std::vector<std::pair<std::string, std::string>>& with) {
  for (const auto& [place, value] : with) {
    for (size_t at = text.find(place); at != std::string::npos;
         at = text.find(place, at + value.size())) {
      text.replace(at, place.size(), value);
    }
  }
  return text;
}

// FNV-1a of the bytes, 32 bits (Fowler, Noll, Vo), as a constant that C's preprocessor compares.
std::string IdentityOf(std::string_view text) {
  uint32_t hash = 0x811c9dc5U;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x01000193U;
  }
  return fmt::format("0x{:08x}u", hash);
}

}  // namespace

std::vector<std::string> TypesWithCSource() {
  std::vector<std::string> types;
  for (const RuleInC& rule : kRulesInC) types.emplace_back(rule.type);
  return types;
}

std::string MakeCSource(const ThetaFile& theta_file, const std::string& name) {
  const Config resolved = ResolvedOptimizer(theta_file.learned_optimizer);
  const std::vector<Config> configs = FromTheInside(resolved);
  CSource file;
  file.Add(CFile("shared"));
  if (const int64_t boundaries = MostBoundaries(configs); boundaries > 0) {
    file.BeginRule();
    file.Define("MAX_BOUNDARIES", boundaries);
    file.Add(CFile("schedule"));
  }
  std::string rule_inside;
  std::string function_inside;
  std::string needs_num_steps;
  for (const Config& config : configs) {
    const RuleInC rule = FindRule(config.Type());
    const auto optimizer = OptimizerRegistry().Make(config);
    // Theta of a rule inside another is the first part of the other's.
    const std::span<const float> theta(theta_file.theta.data(),
                                       static_cast<size_t>(optimizer->theta_layout().size()));
    if (!rule_inside.empty()) {
      file.BeginRule();
      file.DefineRule(std::string(rule.macro) + "_OF", rule_inside, function_inside);
    }
    rule.write(
        {.config = config, .layout = optimizer->theta_layout(), .theta = theta, .file = file});
    rule_inside = rule.macro;
    function_inside = rule.function;
    needs_num_steps = optimizer->needs_num_steps();
  }
  file.BeginRule();
  file.DefineRule("RULE", rule_inside, function_inside);
  file.Define("NEEDS_NUM_STEPS", needs_num_steps.empty() ? 0 : 1);
  file.Add(CFile("end"));
  const std::string options = resolved.Dump(-1);
  return Filled(std::string(CFile("begin")),
                {{"@theta@", ForComment(name)},
                 {"@options@", options},
                 {"LOPT_IDENTITY", IdentityOf(options + file.text())},
                 {"@version@",
                  theta_file.version.empty() ? "unknown" : ForComment(theta_file.version)}}) +
         "\n" + file.text();
}

}  // namespace lopt
