#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "evaluation/presets.h"
#include "learner/meta_train_config.h"
#include "python/src/bind.h"
#include "python/src/convert.h"
#include "tools/describe.h"
#include "tools/presets.h"

namespace lopt::python {

namespace nb = nanobind;
using nlohmann::ordered_json;

namespace {

std::string TypeName(nb::handle value) {
  return nb::cast<std::string>(value.type().attr("__name__"));
}

// A Python int, or what stands for one (NumPy's integers); invalid for anything else.
nb::object IntegerOf(nb::handle value) {
  if (!PyIndex_Check(value.ptr())) return {};
  nb::object integer = nb::steal(PyNumber_Index(value.ptr()));
  if (!integer.is_valid()) PyErr_Clear();
  return integer;
}

// `path` leads from the config `what` to the value: "estimators[0].std".
ordered_json JsonOf(nb::handle value, const std::string& what, const std::string& path) {
  if (value.is_none()) return nullptr;
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  if (nb::isinstance<nb::float_>(value)) {
    const auto number = nb::cast<double>(value);
    Require(std::isfinite(number), "{}: '{}' must be finite, got {}", what, path, number);
    return number;
  }
  if (const nb::object integer = IntegerOf(value); integer.is_valid()) {
    int64_t number = 0;
    Require(nb::try_cast<int64_t>(integer, number),
            "{}: '{}' must be an integer of 64 bits, got {}", what, path,
            nb::cast<std::string>(nb::str(value)));
    return number;
  }
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    ordered_json list = ordered_json::array();
    for (const nb::handle item : value) {
      list.push_back(JsonOf(item, what, fmt::format("{}[{}]", path, list.size())));
    }
    return list;
  }
  if (nb::isinstance<nb::dict>(value)) {
    ordered_json object = ordered_json::object();
    for (const auto& [key, item] : nb::borrow<nb::dict>(value)) {
      Require(nb::isinstance<nb::str>(key), "{}: a key must be str, got {}{}", what, TypeName(key),
              path.empty() ? "" : " in '" + path + "'");
      const auto name = nb::cast<std::string>(key);
      object[name] = JsonOf(item, what, path.empty() ? name : path + "." + name);
    }
    return object;
  }
  Fail("{}: '{}' must be a dict, list, tuple, str, bool, int, float or None, got {}", what, path,
       TypeName(value));
}

nb::object PythonOf(const ordered_json& json) {
  switch (json.type()) {
    case ordered_json::value_t::object: {
      nb::dict dict;
      for (const auto& [key, value] : json.items()) dict[key.c_str()] = PythonOf(value);
      return dict;
    }
    case ordered_json::value_t::array: {
      nb::list list;
      for (const ordered_json& value : json) list.append(PythonOf(value));
      return list;
    }
    case ordered_json::value_t::string:
      return nb::cast(json.get<std::string>());
    case ordered_json::value_t::boolean:
      return nb::cast(json.get<bool>());
    case ordered_json::value_t::number_integer:
      return nb::cast(json.get<int64_t>());
    case ordered_json::value_t::number_unsigned:
      return nb::cast(json.get<uint64_t>());
    case ordered_json::value_t::number_float:
      return nb::cast(json.get<double>());
    default:
      return nb::none();
  }
}

// Those of a kind, by the word that Python has for it.
const Presets& PresetsOf(const std::string& kind) {
  if (kind == "meta_train") return MetaTrainPresets();
  if (kind == "evaluate") return EvaluationPresets();
  Fail("There are no presets of kind '{}'; the kinds are meta_train and evaluate", kind);
}

}  // namespace

Config ConfigOfDict(nb::handle dict, const std::string& what) {
  Require(nb::isinstance<nb::dict>(dict), "{} must be a dict, got {}", what, TypeName(dict));
  return Config::FromJson(JsonOf(dict, what, ""));
}

Config ConfigOf(nb::handle from, const Presets& presets, const std::string& what) {
  if (nb::isinstance<nb::dict>(from)) return ConfigOfDict(from, what);
  const bool is_text = nb::isinstance<nb::str>(from);
  Require(is_text || nb::hasattr(from, "__fspath__"),
          "{} must be a dict, the name of a preset or the path of a JSON file, got {}", what,
          TypeName(from));
  const auto path =
      nb::cast<std::string>(is_text ? nb::borrow(from) : nb::object(from.attr("__fspath__")()));
  for (const Preset& preset : presets.all()) {
    if (is_text && preset.name == path) return preset.config;
  }
  if (is_text && !std::filesystem::exists(path)) {
    std::string names;
    for (const Preset& preset : presets.all()) names += (names.empty() ? "" : ", ") + preset.name;
    Fail("{} '{}' is neither a preset nor a file; the presets are {}", what, path, names);
  }
  return Config::Load(path);
}

nb::object ToPython(const Config& config) {
  return config.empty() ? nb::dict() : PythonOf(config.json());
}

void BindConfig(nb::module_& m) {
  m.def(
      "presets",
      [](const std::string& kind) {
        nb::dict summaries;
        for (const Preset& preset : PresetsOf(kind).all()) {
          summaries[preset.name.c_str()] = preset.summary;
        }
        return summaries;
      },
      nb::arg("kind") = "meta_train",
      nb::sig("def presets(kind: str = 'meta_train') -> dict[str, str]"),
      "The built-in configs and a sentence about each: of meta-trainings (\"meta_train\") or of\n"
      "evaluations (\"evaluate\").");
  m.def(
      "load_config",
      [](nb::handle source, const std::string& kind) {
        return ToPython(ConfigOf(source, PresetsOf(kind), "config"));
      },
      nb::arg("source"), nb::arg("kind") = "meta_train",
      nb::sig(
          "def load_config(source: dict | str | os.PathLike, kind: str = 'meta_train') -> dict"),
      "A config as a dict to look at and to change: that of a preset or of a JSON file.");
  m.def(
      "resolve",
      [](nb::handle config) {
        const auto options =
            ReadOptions<MetaTrainConfig>(ConfigOf(config, MetaTrainPresets(), "config"));
        CheckConfig(options);
        return ToPython(WriteOptions("", Resolved(options)));
      },
      nb::arg("config"), nb::sig("def resolve(config: dict | str | os.PathLike) -> dict"),
      "A meta-training config with every key and its value. Raises Error where the config is "
      "wrong.");
  m.def(
      "describe",
      [](const std::string& type) {
        return type.empty() ? DescribeEverything() : DescribeTypeNamed(type);
      },
      nb::arg("type") = "",
      "Every type and key of a config, with defaults and meanings, as Markdown; or those of one\n"
      "type. Raises Error, with the types, if there is none of this name.");
}

}  // namespace lopt::python
