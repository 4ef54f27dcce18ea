#include "lopt/base/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/describe_fields.h"
#include "lopt/base/eigen.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/print.h"
#include "lopt/base/type_table.h"
#include "lopt/base/wrapped.h"
#include "lopt/evaluation/evaluation_config.h"
#include "lopt/evaluation/presets.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/learner/train/batches.h"
#include "lopt/learner/train/train_config.h"
#include "lopt/lopt/registry.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/job_command.h"
#include "lopt/tools/json_text.h"
#include "lopt/tools/progress_line.h"

namespace lopt {

namespace {

namespace po = boost::program_options;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kConfigSynopsis = "lopt config [CONFIG.json] [OPTIONS]";
constexpr const char* kConfigExamples =
    "Prints every key with its value, in the order of lopt describe, and runs nothing. If the "
    "config has errors, all of them are listed.\n\n"
    "Examples:\n"
    "  lopt config config.json --set estimators.0.std=0.02\n"
    "  lopt config --preset fast --explain\n"
    "  lopt config --for eval --preset generalization\n";
constexpr size_t kExplainedWidth = 100;  // where no terminal is narrower

// A key that is explained, and the types that its objects may have; null where it holds none.
struct ExplainedKey {
  FieldRow row;
  const TypeTable* types = nullptr;
};

std::vector<ExplainedKey> ExplainedKeys(const VisitFields& fields) {
  const std::string marker = "\x1f";  // ends the value of a key with types
  std::vector<const TypeTable*> tables;
  std::vector<FieldRow> rows = FieldRows(fields, [&](const TypeTable& types) {
    tables.push_back(&types);
    return types.kind() + marker;
  });
  std::vector<ExplainedKey> keys;
  auto table = tables.begin();
  for (FieldRow& row : rows) {
    keys.push_back({std::move(row)});
    std::string& value = keys.back().row.value;
    if (!value.ends_with(marker)) continue;
    value.pop_back();
    keys.back().types = *table++;
  }
  return keys;
}

// "Seed of all randomness. (integer at least 0; default 0)"
std::string KeyText(const FieldRow& row) {
  const bool required = row.default_value == "required";
  std::string text = fmt::format("{} ({}; {}{})", row.meaning, row.value,
                                 required ? "" : "default ", row.default_value);
  std::erase(text, '`');
  return text;
}

std::string Comment(const std::string& text, size_t indent) {
  const auto terminal = static_cast<size_t>(TerminalColumns(stdout));
  const size_t columns = terminal > 0 ? std::min(terminal, kExplainedWidth) : kExplainedWidth;
  return Wrap(text, columns, std::string(indent, ' ') + "// ") + '\n';
}

// What explains an object.
struct Explanation {
  VisitFields fields;
  VisitFields of_named = nullptr;  // of the objects that a key without a field has under names
};

std::string ExplainedObject(const OrderedJson& json, const Explanation& by, size_t indent);

// The value of a key: its objects with types are explained, too.
std::string ExplainedValue(const OrderedJson& json, const TypeTable* types, size_t indent) {
  if (types == nullptr || !json.is_structured() || json.empty()) {
    return WrappedJson(json, indent, indent);
  }
  if (json.is_object()) {
    return ExplainedObject(json, {types->Find(Config::FromJson(json)).fields}, indent);
  }
  const std::string spaces(indent, ' ');
  std::string text = "[";
  for (const OrderedJson& element : json) {
    text += fmt::format("{}\n{}  {}", text.size() == 1 ? "" : ",", spaces,
                        ExplainedValue(element, types, indent + 2));
  }
  return fmt::format("{}\n{}]", text, spaces);
}

std::string NamedObjects(const OrderedJson& json, const VisitFields& fields, size_t indent) {
  std::string text = "{";
  for (const auto& [name, value] : json.items()) {
    text += fmt::format("{}\n{}{}: {}", text.size() == 1 ? "" : ",", std::string(indent + 2, ' '),
                        OrderedJson(name).dump(), ExplainedObject(value, {fields}, indent + 2));
  }
  return fmt::format("{}\n{}}}", text, std::string(indent, ' '));
}

// An object, the text of each of its keys before it.
std::string ExplainedObject(const OrderedJson& json, const Explanation& by, size_t indent) {
  const std::vector<ExplainedKey> keys = ExplainedKeys(by.fields);
  const std::string spaces(indent + 2, ' ');
  std::string text = "{";
  for (const auto& [name, value] : json.items()) {
    const std::string code = fmt::format("`{}`", name);
    const auto key =
        std::ranges::find_if(keys, [&](const ExplainedKey& k) { return k.row.key == code; });
    const bool known = key != keys.end();
    text += text.size() == 1 ? "\n" : ",\n";
    if (known) text += Comment(KeyText(key->row), indent + 2);
    text += fmt::format("{}{}: {}", spaces, OrderedJson(name).dump(),
                        !known && by.of_named && value.is_object()
                            ? NamedObjects(value, by.of_named, indent + 2)
                            : ExplainedValue(value, known ? key->types : nullptr, indent + 2));
  }
  return fmt::format("{}\n{}}}", text, std::string(indent, ' '));
}

// The config of a command: resolved, and the fields that explain it.
struct ShownConfig {
  Config resolved;
  Explanation by;
};

// Throws Error as a run does that steps params by the optimizer.
void CheckSteps(const Config& config) {
  const auto optimizer = OptimizerRegistry().Make(config);
  const Eigen::VectorXf theta = optimizer->InitTheta(Key{});
  optimizer->Bind(Layout({{"w", {2, 3}}, {"b", {3}}}), AsSpan(theta));
}

// The examples of a batch, where an option of the task says them. The task itself is not made: its
// data may be elsewhere. A wrapper may change the batches of the task inside it.
std::optional<int64_t> BatchSizeOf(const OrderedJson& task) {
  const auto size = task.find("batch_size");
  if (size == task.end() || !size->is_number_integer()) return std::nullopt;
  return size->get<int64_t>();
}

void CheckTraining(const TrainConfig& config, const OrderedJson& resolved) {
  const OrderedJson& optimizer = resolved.at("optimizer");
  if (const auto initial = optimizer.find("learned_optimizer"); initial != optimizer.end()) {
    CheckSteps(Config::FromJson(*initial));
  }
  if (const auto batch_size = BatchSizeOf(resolved.at("task"))) {
    CheckShares(*batch_size, config.workers);
  }
}

ShownConfig ResolvedFor(const std::string& command, const Config& config) {
  if (command == "meta-train") {
    const auto read = ReadOptions<MetaTrainConfig>(config);
    CheckConfig(read);
    CheckSteps(read.learned_optimizer);
    return {WriteOptions("", Resolved(read)),
            {[](FieldVisitor& v) { MetaTrainConfig().Visit(v); }}};
  }
  if (command == "train") {
    const auto read = ReadOptions<TrainConfig>(config);
    Config resolved = WriteOptions("", read);
    CheckTraining(read, resolved.json());
    return {std::move(resolved), {[](FieldVisitor& v) { TrainConfig().Visit(v); }}};
  }
  return {WriteEvaluationConfig(ReadEvaluationConfig(config)),
          {[](FieldVisitor& v) { EvaluationConfig().Visit(v); },
           [](FieldVisitor& v) {
             EvaluationTask any;
             VisitEvaluationTask(v, &any);
           }}};
}

// The presets of a command; null if it has none.
const Presets* PresetsFor(const std::string& command) {
  if (command == "meta-train") return &MetaTrainPresets();
  if (command == "eval") return &EvaluationPresets();
  if (command == "train") return nullptr;
  throw UsageError(fmt::format("--for must be meta-train, eval or train, got '{}'", command));
}

Config ReadShownConfig(const po::variables_map& values, const Presets* presets) {
  const auto path = TextOption(values, "config");
  const auto preset = TextOption(values, "preset");
  if (path && preset) throw UsageError("Give a config file or --preset, not both");
  if (path) return Config::Load(*path);
  if (!preset) {
    throw UsageError(fmt::format(
        "What to show is missing: a config file or --preset NAME; usage: {}", kConfigSynopsis));
  }
  if (presets == nullptr) throw UsageError("lopt train has no presets; give a config file");
  return presets->Find(*preset);
}

}  // namespace

int ConfigCommand(const std::vector<std::string>& arguments) {
  po::options_description options("Options");
  auto add = options.add_options();
  add("preset", po::value<std::string>()->value_name("NAME"),
      "A built-in config instead of CONFIG.json.");
  add("for", po::value<std::string>()->value_name("COMMAND")->default_value("meta-train"),
      "The command that reads it: meta-train, eval or train.");
  add("set", po::value<std::vector<std::string>>()->value_name("KEY=VALUE")->composing(),
      "Replace one value of the config, e.g. estimators.0.std=0.02. May be repeated.");
  add("explain", "Say of each key, in a comment before it, what it means.");
  const auto values =
      ParseCommandLine(arguments, options, "config", 1, kConfigSynopsis, kConfigExamples);
  if (!values) return kExitDone;
  const auto command = (*values)["for"].as<std::string>();
  const Config config = ReadShownConfig(*values, PresetsFor(command));
  const ShownConfig shown = ResolvedFor(command, WithSettings(*values, config, ""));
  const OrderedJson& json = shown.resolved.json();
  PrintOut("{}\n", values->contains("explain") ? ExplainedObject(json, shown.by, 0)
                                               : WrappedJson(json, 0, 0));
  return kExitDone;
}

}  // namespace lopt
