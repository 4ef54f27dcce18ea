#include "lopt/lopt/use/torch_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/presets.h"
#include "lopt/lopt/rate_schedule.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/use/inner_optimizers.h"

namespace lopt {
namespace {

using Json = nlohmann::ordered_json;

constexpr EmbeddedFile kRuleFiles[] = {
#include "lopt/lopt/rules.inc"
};

// Python code as far as it is TorchScript: what stands at its left margin. What has a decorator,
// and other statements, are left out.
struct Definitions {
  std::map<std::string, std::string> functions;
  Json constants = Json::object();  // numbers, true or false, lists of numbers
};
struct Class {
  std::string base;
  Definitions body;
};
struct RuleText {
  Definitions top;
  std::map<std::string, Class> classes;
};

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// The statements, without docstrings and comments between them.
std::vector<std::string> Statements(std::string_view text) {
  constexpr std::string_view kQuotes = R"(""")";
  std::vector<std::string> statements;
  bool in_docstring = false;
  bool decorated = false;
  for (const std::string& line : Lines(text)) {
    if (in_docstring || line.starts_with(kQuotes)) {
      const bool whole = !in_docstring && line.size() >= 2 * kQuotes.size();
      in_docstring = !line.ends_with(kQuotes) || !(in_docstring || whole);
      continue;
    }
    if (line.starts_with('#')) continue;
    const bool at_margin = !line.empty() && line[0] != ' ' && line[0] != ')';
    if (at_margin && !decorated) statements.emplace_back();
    decorated = line.starts_with('@');
    if (!statements.empty()) statements.back() += line + "\n";
  }
  return statements;
}

void AddConstant(const std::string& name, std::string text, Definitions* definitions) {
  if (text == "True" || text == "False") text = text == "True" ? "true" : "false";
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_number() || value.is_boolean() || value.is_array()) {
    definitions->constants[name] = value;
  }
}

// Adds what a statement defines, unless it is a class.
void AddDefinition(const std::string& statement, Definitions* definitions) {
  static const std::regex function(R"(def (\w+)\()");
  static const std::regex assignment(R"((\w+) = (.*?)(  #.*)?\n*)");
  std::smatch found;
  constexpr auto kAtBegin = std::regex_constants::match_continuous;
  if (std::regex_search(statement, found, function, kAtBegin)) {
    definitions->functions[found[1]] = statement;
  } else if (std::regex_match(statement, found, assignment)) {
    AddConstant(found[1], found[2], definitions);
  }
}

Class ReadClass(std::string base, std::string_view statement) {
  constexpr size_t kIndent = 4;
  std::string body;
  for (const std::string& line : Lines(statement.substr(statement.find('\n') + 1))) {
    body += (line.size() < kIndent ? "" : line.substr(kIndent)) + "\n";
  }
  Class made = {.base = std::move(base), .body = {}};
  for (const std::string& own : Statements(body)) AddDefinition(own, &made.body);
  return made;
}

const RuleText& Rules() {
  static const RuleText rules = [] {
    static const std::regex header(R"(class (\w+)(?:\((\w+)\))?:\n)");
    RuleText read;
    for (const EmbeddedFile& file : kRuleFiles) {
      for (const std::string& statement : Statements(file.text)) {
        std::smatch found;
        if (std::regex_search(statement, found, header, std::regex_constants::match_continuous)) {
          read.classes[found[1]] = ReadClass(found[2], statement);
        } else {
          AddDefinition(statement, &read.top);
        }
      }
    }
    return read;
  }();
  return rules;
}

std::string ClassName(const std::string& type) { return "_" + type; }

// What a class has, that of its bases included.
Definitions AllOf(const std::string& name) {
  const Class& own = Rules().classes.at(name);
  Definitions all = own.base.empty() ? Definitions() : AllOf(own.base);
  for (const auto& [method, text] : own.body.functions) all.functions[method] = text;
  all.constants.update(own.body.constants);
  return all;
}

std::string Text(const std::map<std::string, std::string>& functions) {
  std::string text;
  for (const auto& [name, function] : functions) text += function + "\n";
  return text;
}

std::string ShortSchedules() {
  std::vector<std::string> names;
  for (const auto& [name, stands_for] : RateScheduleTypes().short_names()) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// The rule of a config with all of its options, which has such a script.
ScriptModule MakeRule(const Config& config) {
  Definitions rule = AllOf(ClassName(config.Type()));
  ScriptModule module;
  for (const auto& [option, inner] : InnerOptimizers(config)) {
    module.modules[option] = MakeRule(inner);
  }
  for (const auto& [option, value] : config.json().items()) {
    if (option != "type" && !module.modules.contains(option)) rule.constants[option] = value;
  }
  module.methods = Text(rule.functions);
  module.attributes = Config::FromJson(rule.constants);
  return module;
}

// What is said of a script that is wanted.
struct Wish {
  const char* verb;                // what cannot be done without it
  std::vector<std::string> types;  // with which it can
};

// Those that have a script and see gradients alone. Others make features of the loss.
std::vector<std::string> TypesWithExactGradients() {
  std::vector<std::string> types = TypesWithTorchScript();
  std::erase_if(types, [](const std::string& type) {
    return AllOf(ClassName(type)).functions.contains("loss_features");
  });
  return types;
}

// The same of a config with all of its options.
std::string ObjectionOf(const Config& config, const Wish& wish) {
  const std::string type = config.Type();
  if (!Rules().classes.contains(ClassName(type))) {
    return fmt::format(
        "a {} cannot be {}{}; types that can: {}", type, wish.verb,
        type == "RNNMLPLOpt" ? ", for it sees all tensors and a script sees one" : "",
        fmt::join(wish.types, ", "));
  }
  const auto inner = InnerOptimizers(config);
  for (const auto& [option, value] : config.json().items()) {
    const auto is_it = [&name = option](const auto& other) { return other.first == name; };
    if (value.is_object() && std::ranges::none_of(inner, is_it)) {
      return fmt::format("a {} with the {} {} cannot be {}; schedules that can: {}", type, option,
                         value.dump(), wish.verb, ShortSchedules());
    }
  }
  for (const auto& [option, optimizer] : inner) {
    std::string objection = ObjectionOf(optimizer, wish);
    if (!objection.empty()) return objection;
  }
  return "";
}

}  // namespace

std::vector<std::string> TypesWithTorchScript() {
  std::vector<std::string> types;
  for (const TypeEntry& entry : OptimizerRegistry().table().entries()) {
    if (Rules().classes.contains(ClassName(entry.type))) types.push_back(entry.type);
  }
  std::ranges::sort(types);
  return types;
}

std::string ObjectionToTorch(const Config& learned_optimizer) {
  return ObjectionOf(ResolvedOptimizer(learned_optimizer),
                     {.verb = "exported", .types = TypesWithTorchScript()});
}

std::string ObjectionToExactGradients(const Config& learned_optimizer) {
  return ObjectionOf(ResolvedOptimizer(learned_optimizer),
                     {.verb = "differentiated", .types = TypesWithExactGradients()});
}

ScriptModule MakeTorchScript(const ThetaFile& theta_file) {
  const std::string objection = ObjectionToTorch(theta_file.learned_optimizer);
  Require(objection.empty(), "TorchScript: {}", objection);
  ScriptModule module = MakeRule(ResolvedOptimizer(theta_file.learned_optimizer));
  module.functions = Text(Rules().top.functions);
  module.constants = Config::FromJson(Rules().top.constants);
  module.methods += Text(AllOf("_Module").functions);
  const auto optimizer = OptimizerRegistry().Make(theta_file.learned_optimizer);
  Json attributes = module.attributes.json();
  attributes["needs_num_steps"] = optimizer->needs_num_steps();
  attributes["needs_loss"] = optimizer->needs_loss() ? theta_file.learned_optimizer.Type() : "";
  module.attributes = Config::FromJson(attributes);
  const std::span<const float> theta(theta_file.theta.data(),
                                     static_cast<size_t>(theta_file.theta.size()));
  const NamedArrays arrays = ArraysFromRow(optimizer->theta_layout(), theta);
  for (const LayoutEntry& entry : optimizer->theta_layout().entries()) {
    module.theta.emplace_back(entry.name, arrays.At(entry.name));
  }
  return module;
}

}  // namespace lopt
