#include "base/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/config.h"
#include "base/error.h"
#include "base/field_values.h"
#include "base/nearest_name.h"
#include "base/strict_json.h"

namespace lopt {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void FailValue(const std::string& path, std::string_view wanted, const Json& got,
                            std::string_view more = "") {
  Fail("config: '{}' must be {}, got {}{}", path, wanted, ShowJson(got), more);
}

int64_t ToInteger(const std::string& path, const Json& json, const Range& range) {
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    FailValue(path, "an integer below 2^63", json);
  }
  if (!json.is_number_integer() || !Contains(range, json.get<int64_t>())) {
    FailValue(path, NumberWords("an integer", range), json);
  }
  return json.get<int64_t>();
}

double ToNumber(const std::string& path, const Json& json, const Range& range) {
  if (!json.is_number() || !Contains(range, json.get<double>())) {
    FailValue(path, NumberWords("a number", range), json);
  }
  return json.get<double>();
}

std::string ChoiceWords(const std::vector<std::string>& choices) {
  return choices.empty() ? "text" : fmt::format("one of {}", fmt::join(choices, ", "));
}

bool IsChoice(const std::vector<std::string>& choices, const std::string& value) {
  return choices.empty() || std::ranges::find(choices, value) != choices.end();
}

Json Resolve(const Config& config, const TypeTable& types);

// Collects the names of the fields.
class NameCollector : public FieldVisitor {
 public:
  void Field(const char* name, bool*, const char*) override { names_.push_back(name); }
  void Field(const char* name, int64_t*, Range, const char*) override { names_.push_back(name); }
  void Field(const char* name, double*, Range, const char*) override { names_.push_back(name); }
  void Field(const char* name, std::optional<double>*, Range, const char*) override {
    names_.push_back(name);
  }
  void Field(const char* name, std::vector<int64_t>*, Range, const char*) override {
    names_.push_back(name);
  }
  void Field(const char* name, std::vector<double>*, Range, const char*) override {
    names_.push_back(name);
  }
  void Field(const char* name, std::string*, const std::vector<std::string>&,
             const char*) override {
    names_.push_back(name);
  }
  void Typed(const char* name, Config*, const TypeTable&, const char*) override {
    names_.push_back(name);
  }
  void Typed(const char* name, std::vector<Config>*, const TypeTable&, const char*) override {
    names_.push_back(name);
  }

  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

void CheckKeys(const Config& config, const VisitFields& fields) {
  NameCollector collector;
  fields(collector);
  for (const auto& [key, value] : config.json().items()) {
    if (key != "type" && std::ranges::find(collector.names(), key) == collector.names().end()) {
      Fail("config: unknown key '{}'; valid keys: {}{}", JoinKey(config.path(), key),
           fmt::join(collector.names(), ", "), DidYouMean(key, collector.names()));
    }
  }
}

// Gives every field the value that `config` has for it and then adds what the field holds to
// `resolved`. An empty `config` leaves the fields as they are.
class FieldResolver : public FieldVisitor {
 public:
  FieldResolver(const Config& config, Json* resolved) : config_(config), resolved_(resolved) {}

  void Field(const char* name, bool* value, const char*) override {
    if (const Json* json = Given(name)) {
      if (!json->is_boolean()) {
        FailValue(Path(name), "true or false", *json);
      }
      *value = json->get<bool>();
    }
    Put(name, *value);
  }

  void Field(const char* name, int64_t* value, Range range, const char*) override {
    if (const Json* json = Given(name)) {
      *value = ToInteger(Path(name), *json, range);
    }
    CheckDefault(name, Contains(range, *value), NumberWords("an integer", range));
    Put(name, *value);
  }

  void Field(const char* name, double* value, Range range, const char*) override {
    if (const Json* json = Given(name)) {
      *value = ToNumber(Path(name), *json, range);
    }
    CheckDefault(name, Contains(range, *value), NumberWords("a number", range));
    Put(name, Finite(name, *value));
  }

  void Field(const char* name, std::optional<double>* value, Range range, const char*) override {
    if (const Json* json = Given(name)) {
      if (json->is_null()) {
        value->reset();
      } else {
        *value = ToNumber(Path(name), *json, range);
      }
    }
    Put(name, value->has_value() ? Json(Finite(name, **value)) : Json(nullptr));
  }

  void Field(const char* name, std::vector<int64_t>* value, Range range, const char*) override {
    ReadList(
        name, NumberWords("a list of integers", range), value,
        [&](const std::string& path, const Json& json) { return ToInteger(path, json, range); });
    Put(name, *value);
  }

  void Field(const char* name, std::vector<double>* value, Range range, const char*) override {
    ReadList(
        name, NumberWords("a list of numbers", range), value,
        [&](const std::string& path, const Json& json) { return ToNumber(path, json, range); });
    for (double number : *value) {
      Finite(name, number);
    }
    Put(name, *value);
  }

  void Field(const char* name, std::string* value, const std::vector<std::string>& choices,
             const char*) override {
    if (const Json* json = Given(name)) {
      if (!json->is_string() || !IsChoice(choices, json->get<std::string>())) {
        FailValue(Path(name), ChoiceWords(choices), *json,
                  json->is_string() ? DidYouMean(json->get<std::string>(), choices) : "");
      }
      *value = json->get<std::string>();
    }
    CheckDefault(name, IsChoice(choices, *value), ChoiceWords(choices));
    Put(name, *value);
  }

  void Typed(const char* name, Config* value, const TypeTable& types, const char*) override {
    if (const Json* json = Given(name)) {
      *value = ToConfig(Path(name), *json, types);
    }
    if (value->empty()) {
      Require(config_.empty(), "config: '{}' is missing; {}", Path(name), types.ValidTypes());
      return;
    }
    *value = Config::FromJson(value->json(), Path(name));
    Put(name, Resolve(*value, types));
  }

  void Typed(const char* name, std::vector<Config>* value, const TypeTable& types,
             const char*) override {
    ReadList(
        name, "a list of objects with a \"type\"", value,
        [&](const std::string& path, const Json& json) { return ToConfig(path, json, types); });
    Json resolved = Json::array();
    for (size_t i = 0; i < value->size(); ++i) {
      (*value)[i] = Config::FromJson((*value)[i].json(), JoinIndex(Path(name), i));
      resolved.push_back(Resolve((*value)[i], types));
    }
    Put(name, std::move(resolved));
  }

 private:
  std::string Path(const char* name) const { return JoinKey(config_.path(), name); }

  const Json* Given(const char* name) const {
    if (config_.empty()) {
      return nullptr;
    }
    const auto found = config_.json().find(name);
    return found == config_.json().end() ? nullptr : &*found;
  }

  // A value that was given has been checked before.
  void CheckDefault(const char* name, bool valid, const std::string& wanted) const {
    Require(valid || config_.empty(), "config: '{}' is missing; it must be {}", Path(name), wanted);
  }

  double Finite(const char* name, double value) const {
    Require(std::isfinite(value), "config: '{}' is {}, which a config cannot hold", Path(name),
            value);
    return value;
  }

  template <class T, class Convert>
  void ReadList(const char* name, const std::string& wanted, std::vector<T>* value,
                Convert convert) const {
    const Json* json = Given(name);
    if (json == nullptr) {
      return;
    }
    if (!json->is_array()) {
      FailValue(Path(name), wanted, *json);
    }
    value->clear();
    for (size_t i = 0; i < json->size(); ++i) {
      value->push_back(convert(JoinIndex(Path(name), i), (*json)[i]));
    }
  }

  Config ToConfig(const std::string& path, const Json& json, const TypeTable& types) const {
    if (!json.is_object()) {
      FailValue(path, "an object with a \"type\"", json, "; " + types.ValidTypes());
    }
    return Config::FromJson(json, path);
  }

  void Put(const char* name, Json value) {
    Require(!resolved_->contains(name), "config: the key '{}' is declared twice", Path(name));
    (*resolved_)[name] = std::move(value);
  }

  const Config& config_;
  Json* resolved_;
};

// The config of a type with all its keys, defaults included.
Json Resolve(const Config& config, const TypeTable& types) {
  const TypeEntry& entry = types.Find(config);
  CheckKeys(config, entry.fields);
  Json resolved = {{"type", entry.type}};
  FieldResolver resolver(config, &resolved);
  entry.fields(resolver);
  return resolved;
}

}  // namespace

void ReadFields(const Config& config, const VisitFields& fields) {
  CheckKeys(config, fields);
  Json resolved = Json::object();
  FieldResolver resolver(config, &resolved);
  fields(resolver);
}

Config WriteFields(std::string_view type, const VisitFields& fields) {
  Json resolved = Json::object();
  if (!type.empty()) {
    resolved["type"] = type;
  }
  const Config nothing_given;
  FieldResolver resolver(nothing_given, &resolved);
  fields(resolver);
  return Config::FromJson(std::move(resolved));
}

}  // namespace lopt
