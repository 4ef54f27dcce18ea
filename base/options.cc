#include "lopt/base/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/field_values.h"
#include "lopt/base/nearest_name.h"
#include "lopt/base/problems.h"
#include "lopt/base/strict_json.h"
#include "lopt/base/type_table.h"

namespace lopt {
namespace {

using Json = nlohmann::ordered_json;

const char* NounOf(int64_t) { return "an integer"; }
const char* NounOf(double) { return "a number"; }
const char* NounOf(const std::vector<int64_t>&) { return "a list of integers"; }
const char* NounOf(const std::vector<double>&) { return "a list of numbers"; }

Json Resolve(const Config& config, const TypeTable& types, Problems* problems);

// What a short name stands for; of anything else, itself.
const Json& SpelledOut(const Json& json, const TypeTable& types) {
  for (const auto& [name, stands_for] : types.short_names()) {
    if (json == name) return stands_for.json();
  }
  return json;
}

// The short name of a resolved object; of one without, itself.
Json InShort(Json resolved, const TypeTable& types) {
  for (const auto& [name, stands_for] : types.short_names()) {
    Problems problems("config");
    if (resolved == Resolve(stands_for, types, &problems)) return name;
  }
  return resolved;
}

// Collects the names of the fields, those that are free on resume, and the keys that have moved.
class NameCollector : public FieldVisitor {
 public:
  void Field(const char* name, bool*, const char*) override { Add(name); }
  void Field(const char* name, int64_t*, Range, const char*) override { Add(name); }
  void Field(const char* name, double*, Range, const char*) override { Add(name); }
  void Field(const char* name, std::optional<int64_t>*, Range, const char*) override { Add(name); }
  void Field(const char* name, std::optional<double>*, Range, const char*) override { Add(name); }
  void Field(const char* name, std::vector<int64_t>*, Range, const char*) override { Add(name); }
  void Field(const char* name, std::vector<double>*, Range, const char*) override { Add(name); }
  void Field(const char* name, std::string*, const char*) override { Add(name); }
  void Field(const char* name, std::vector<std::string>*, const char*) override { Add(name); }
  void Typed(const char* name, Config*, const TypeTable&, const char*) override { Add(name); }
  void Typed(const char* name, std::vector<Config>*, const TypeTable&, const char*) override {
    Add(name);
  }

  FieldVisitor& FreeOnResume() override {
    marked_ = true;
    return *this;
  }
  void Moved(const char* name, const char* to) override { moved_[name] = {.to = to, .key = ""}; }
  void Renamed(const char* name, const char* key, const char* why) override {
    moved_[name] = {.to = fmt::format("'{}'{}{}", key, *why == 0 ? "" : "; ", why), .key = key};
  }

  // Where a key of old has gone.
  struct Place {
    std::string to;   // for messages
    std::string key;  // that of the fields which it has become; empty if it is none
  };

  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& free_on_resume() const { return free_on_resume_; }
  const std::map<std::string, Place>& moved() const { return moved_; }

 private:
  void Add(const char* name) {
    names_.push_back(name);
    if (std::exchange(marked_, false)) {
      free_on_resume_.push_back(name);
    }
  }
  void Number(const char* name, int64_t*, ChoiceTable, const char*) override { Add(name); }
  void NumberList(const char* name, std::vector<int64_t>*, ChoiceTable, const char*) override {
    Add(name);
  }

  std::vector<std::string> names_;
  std::vector<std::string> free_on_resume_;
  std::map<std::string, Place> moved_;
  bool marked_ = false;  // the next one is free on resume
};

// Reports the keys that are none of the fields' names. Returns the names that they seem to mean.
std::vector<std::string> CheckKeys(const Config& config, const VisitFields& fields,
                                   Problems* problems) {
  NameCollector collector;
  fields(collector);
  const std::vector<std::string>& names = collector.names();
  std::vector<std::string> meant;
  for (const auto& [key, value] : config.json().items()) {
    const auto moved = collector.moved().find(key);
    if (moved != collector.moved().end()) {
      problems->Add(fmt::format("'{}' is now {}", JoinKey(config.path(), key), moved->second.to));
      meant.push_back(moved->second.key);
    } else if (key != "type" && std::ranges::find(names, key) == names.end()) {
      problems->Add(fmt::format("unknown key '{}'; valid keys: {}{}", JoinKey(config.path(), key),
                                fmt::join(names, ", "), DidYouMean(key, names)));
      if (const std::string* name = NearestName(key, names)) {
        meant.push_back(*name);
      }
    }
  }
  return meant;
}

// Gives every field the value that `config` has for it and then adds what the field holds to
// `resolved`. An empty `config` leaves the fields as they are. A field with a problem, which is
// reported, keeps its value and is not added.
class FieldResolver : public FieldVisitor {
 public:
  // `meant`: the fields that are not missing although they are absent.
  FieldResolver(const Config& config, std::vector<std::string> meant, Json* resolved,
                Problems* problems)
      : config_(config), meant_(std::move(meant)), resolved_(resolved), problems_(problems) {}

  void Field(const char* name, bool* value, const char*) override {
    if (const Json* json = Given(name)) {
      if (!json->is_boolean()) {
        return Wrong(Path(name), "true or false", *json);
      }
      *value = json->get<bool>();
    }
    Put(name, *value);
  }

  void Field(const char* name, int64_t* value, Range range, const char*) override {
    Scalar(name, value, range);
  }

  void Field(const char* name, double* value, Range range, const char*) override {
    Scalar(name, value, range);
  }

  void Field(const char* name, std::optional<int64_t>* value, Range range, const char*) override {
    Optional(name, value, range);
  }

  void Field(const char* name, std::optional<double>* value, Range range, const char*) override {
    Optional(name, value, range);
  }

  void Field(const char* name, std::vector<int64_t>* value, Range range, const char*) override {
    Numbers(name, value, range);
  }

  void Field(const char* name, std::vector<double>* value, Range range, const char*) override {
    Numbers(name, value, range);
  }

  void Field(const char* name, std::string* value, const char*) override {
    if (const Json* json = Given(name)) {
      if (!ReadText(Path(name), *json, value)) return;
    }
    Put(name, *value);
  }

  void Field(const char* name, std::vector<std::string>* value, const char*) override {
    const auto read = [&](const std::string& path, const Json& json, std::string* text) {
      return ReadText(path, json, text);
    };
    if (ReadList(name, "a list of texts", value, read)) Put(name, *value);
  }

  void Typed(const char* name, Config* value, const TypeTable& types, const char*) override {
    if (const Json* json = Given(name)) {
      const Json& spelled = SpelledOut(*json, types);
      if (!IsTyped(Path(name), spelled, types)) {
        return;
      }
      *value = Config::FromJson(spelled, Path(name));
    }
    if (value->empty()) {
      if (!config_.empty() && !IsMeant(name)) {
        problems_->Add(fmt::format("'{}' is missing; {}", Path(name), types.ValidTypes()));
      }
      return;
    }
    *value = Config::FromJson(value->json(), Path(name));
    Put(name, InShort(Resolve(*value, types, problems_), types));
  }

  void Typed(const char* name, std::vector<Config>* value, const TypeTable& types,
             const char*) override {
    const auto read = [&](const std::string& path, const Json& json, Config* config) {
      const bool valid = IsTyped(path, json, types);
      if (valid) {
        *config = Config::FromJson(json, path);
      }
      return valid;
    };
    ReadList(name, "a list of objects with a \"type\"", value, read);
    Json resolved = Json::array();
    for (size_t i = 0; i < value->size(); ++i) {
      Config& config = (*value)[i];
      if (!config.empty()) {
        config = Config::FromJson(config.json(), JoinIndex(Path(name), i));
        resolved.push_back(Resolve(config, types, problems_));
      }
    }
    Put(name, std::move(resolved));
  }

  void Refuse(const char* name, const std::string& why) override {
    problems_->Add(fmt::format("'{}' {}", Path(name), why));
  }

 private:
  void Number(const char* name, int64_t* value, ChoiceTable table, const char*) override {
    if (const Json* json = Given(name)) {
      if (!json->is_string() || !FindValue(table, json->get<std::string>(), value)) {
        return Wrong(Path(name), ChoiceWords(table), *json,
                     json->is_string() ? NearestChoice(table, json->get<std::string>()) : "");
      }
    }
    const char* chosen = FindName(table, *value);
    if (chosen != nullptr) {
      Put(name, chosen);
    } else if (!Missing(name, ChoiceWords(table))) {
      problems_->Add(
          fmt::format("'{}' must be {}, got number {}", Path(name), ChoiceWords(table), *value));
    }
  }
  void NumberList(const char* name, std::vector<int64_t>* value, ChoiceTable table,
                  const char*) override {
    const auto read = [&](const std::string& path, const Json& json, int64_t* number) {
      const bool valid = json.is_string() && FindValue(table, json.get<std::string>(), number);
      if (!valid) {
        Wrong(path, ChoiceWords(table), json,
              json.is_string() ? NearestChoice(table, json.get<std::string>()) : "");
      }
      return valid;
    };
    if (!ReadList(name, "a list, each " + ChoiceWords(table), value, read)) return;
    Json chosen = Json::array();
    for (const int64_t number : *value) {
      const char* choice = FindName(table, number);
      if (choice == nullptr) {
        problems_->Add(fmt::format("'{}' must be {}, got number {}",
                                   JoinIndex(Path(name), chosen.size()), ChoiceWords(table),
                                   number));
        return;
      }
      chosen.push_back(choice);
    }
    Put(name, std::move(chosen));
  }

  template <class T>
  void Scalar(const char* name, T* value, const Range& range) {
    const Json* json = Given(name);
    if (json != nullptr
            ? !Read(Path(name), *json, range, value)
            : !Contains(range, *value) && Missing(name, NumberWords(NounOf(*value), range))) {
      return;
    }
    PutNumber(name, *value);
  }

  template <class T>
  void Optional(const char* name, std::optional<T>* value, const Range& range) {
    const Json* json = Given(name);
    if (json != nullptr) {
      value->reset();
      T number = 0;
      if (!json->is_null()) {
        if (!Read(Path(name), *json, range, &number)) {
          return;
        }
        *value = number;
      }
    }
    if (value->has_value()) {
      PutNumber(name, **value);
    } else {
      Put(name, nullptr);
    }
  }

  template <class T>
  void Numbers(const char* name, std::vector<T>* value, const Range& range) {
    const auto read = [&](const std::string& path, const Json& json, T* number) {
      return Read(path, json, range, number);
    };
    if (ReadList(name, NumberWords(NounOf(*value), range), value, read) &&
        std::ranges::all_of(*value, [&](T number) { return IsFinite(name, number); })) {
      Put(name, *value);
    }
  }

  std::string Path(const char* name) const { return JoinKey(config_.path(), name); }

  const Json* Given(const char* name) const {
    if (config_.empty()) {
      return nullptr;
    }
    const auto found = config_.json().find(name);
    return found == config_.json().end() ? nullptr : &*found;
  }

  bool IsMeant(const char* name) const { return std::ranges::find(meant_, name) != meant_.end(); }

  // A field whose default is not valid was not given. False if there is no config to give it in.
  bool Missing(const char* name, const std::string& wanted) const {
    if (!config_.empty() && !IsMeant(name)) {
      problems_->Add(fmt::format("'{}' is missing; it must be {}", Path(name), wanted));
    }
    return !config_.empty();
  }

  void Wrong(const std::string& path, std::string_view wanted, const Json& got,
             std::string_view more = "") const {
    problems_->Add(fmt::format("'{}' must be {}, got {}{}", path, wanted, ShowJson(got), more));
  }

  bool Read(const std::string& path, const Json& json, const Range& range, int64_t* value) const {
    if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      Wrong(path, "an integer below 2^63", json);
      return false;
    }
    return ReadIf(json.is_number_integer(), path, json, range, value);
  }

  bool Read(const std::string& path, const Json& json, const Range& range, double* value) const {
    return ReadIf(json.is_number(), path, json, range, value);
  }

  template <class T>
  bool ReadIf(bool right_type, const std::string& path, const Json& json, const Range& range,
              T* value) const {
    if (!right_type || !Contains(range, json.get<T>())) {
      Wrong(path, NumberWords(NounOf(*value), range), json);
      return false;
    }
    *value = json.get<T>();
    return true;
  }

  bool ReadText(const std::string& path, const Json& json, std::string* value) const {
    if (!json.is_string()) {
      Wrong(path, "text", json);
      return false;
    }
    *value = json.get<std::string>();
    return true;
  }

  bool IsTyped(const std::string& path, const Json& json, const TypeTable& types) const {
    if (!json.is_object()) {
      const std::string_view also = types.short_names().empty() ? "" : "a short name or ";
      Wrong(path, fmt::format("{}an object with a \"type\"", also), json,
            "; " + types.ValidTypes());
    }
    return json.is_object();
  }

  // Takes the list that is given; `read` reads an element and reports it if it cannot.
  template <class T, class ReadElement>
  bool ReadList(const char* name, const std::string& wanted, std::vector<T>* value,
                const ReadElement& read) const {
    const Json* json = Given(name);
    if (json == nullptr) {
      return true;
    }
    if (!json->is_array()) {
      Wrong(Path(name), wanted, *json);
      return false;
    }
    std::vector<T> list(json->size());
    bool valid = true;
    for (size_t i = 0; i < json->size(); ++i) {
      valid = read(JoinIndex(Path(name), i), (*json)[i], &list[i]) && valid;
    }
    *value = std::move(list);
    return valid;
  }

  bool IsFinite(const char* name, double value) const {
    if (!std::isfinite(value)) {
      problems_->Add(fmt::format("'{}' is {}, which a config cannot hold", Path(name), value));
    }
    return std::isfinite(value);
  }

  template <class T>
  void PutNumber(const char* name, T value) {
    if (IsFinite(name, static_cast<double>(value))) {
      Put(name, value);
    }
  }

  void Put(const char* name, Json value) {
    if (resolved_->contains(name)) Fail("config: the key '{}' is declared twice", Path(name));
    *AppendMember(resolved_, name) = std::move(value);
  }

  const Config& config_;
  std::vector<std::string> meant_;
  Json* resolved_;
  Problems* problems_;
};

// Reads `config` into the fields and writes them to `resolved`.
void ReadAndResolve(const Config& config, const VisitFields& fields, Json* resolved,
                    Problems* problems) {
  FieldResolver resolver(config, CheckKeys(config, fields, problems), resolved, problems);
  fields(resolver);
}

// The config of a type with all its keys, defaults included. Of use where there are no problems.
Json Resolve(const Config& config, const TypeTable& types, Problems* problems) {
  const TypeEntry* entry = types.Find(config, problems);
  if (entry == nullptr) {
    return nullptr;
  }
  Json resolved = {{"type", entry->type}};
  ReadAndResolve(config, entry->fields, &resolved, problems);
  return resolved;
}

// Reports the values that a config could not have given the fields.
class FieldChecker : public FieldVisitor {
 public:
  explicit FieldChecker(Problems* problems) : problems_(problems) {}

  void Field(const char*, bool*, const char*) override {}
  void Field(const char* name, int64_t* value, Range range, const char*) override {
    Check(name, *value, range);
  }
  void Field(const char* name, double* value, Range range, const char*) override {
    Check(name, *value, range);
  }
  void Field(const char* name, std::optional<int64_t>* value, Range range, const char*) override {
    if (value->has_value()) {
      Check(name, **value, range);
    }
  }
  void Field(const char* name, std::optional<double>* value, Range range, const char*) override {
    if (value->has_value()) {
      Check(name, **value, range);
    }
  }
  void Field(const char* name, std::vector<int64_t>* value, Range range, const char*) override {
    CheckAll(name, *value, range);
  }
  void Field(const char* name, std::vector<double>* value, Range range, const char*) override {
    CheckAll(name, *value, range);
  }
  void Field(const char*, std::string*, const char*) override {}
  void Field(const char*, std::vector<std::string>*, const char*) override {}
  void Typed(const char* name, Config* value, const TypeTable& types, const char*) override {
    if (value->empty()) {
      problems_->Add(fmt::format("{} is missing; {}", name, types.ValidTypes()));
    } else {
      Resolve(Config::FromJson(value->json(), name), types, problems_);
    }
  }
  void Typed(const char* name, std::vector<Config>* value, const TypeTable& types,
             const char*) override {
    for (size_t i = 0; i < value->size(); ++i) {
      Resolve(Config::FromJson((*value)[i].json(), JoinIndex(name, i)), types, problems_);
    }
  }
  void Refuse(const char* name, const std::string& why) override {
    problems_->Add(fmt::format("{} {}", name, why));
  }

 private:
  void Number(const char* name, int64_t* value, ChoiceTable table, const char*) override {
    if (FindName(table, *value) == nullptr) {
      problems_->Add(fmt::format("{} must be {}, got number {}", name, ChoiceWords(table), *value));
    }
  }
  void NumberList(const char* name, std::vector<int64_t>* value, ChoiceTable table,
                  const char* meaning) override {
    for (size_t i = 0; i < value->size(); ++i) {
      Number(JoinIndex(name, i).c_str(), &(*value)[i], table, meaning);
    }
  }

  template <class T>
  void Check(const std::string& name, T value, const Range& range) {
    if (!std::isfinite(static_cast<double>(value))) {
      problems_->Add(fmt::format("{} must be finite, got {}", name, value));
    } else if (!Contains(range, value)) {
      problems_->Add(fmt::format("{} must be {}, got {}", name, RangeWords(range), value));
    }
  }

  template <class T>
  void CheckAll(const char* name, const std::vector<T>& values, const Range& range) {
    for (size_t i = 0; i < values.size(); ++i) {
      Check(JoinIndex(name, i), values[i], range);
    }
  }

  Problems* problems_;
};

}  // namespace

void ReadFields(const Config& config, const VisitFields& fields, Problems* problems) {
  Json resolved = Json::object();
  ReadAndResolve(config, fields, &resolved, problems);
}

void ReadFields(const Config& config, const VisitFields& fields) {
  Problems problems("config");
  ReadFields(config, fields, &problems);
  problems.ThrowIfAny();
}

Config WriteFields(std::string_view type, const VisitFields& fields) {
  Json resolved = Json::object();
  if (!type.empty()) {
    resolved["type"] = type;
  }
  const Config nothing_given;
  Problems problems("config");
  FieldResolver resolver(nothing_given, {}, &resolved, &problems);
  fields(resolver);
  problems.ThrowIfAny();
  return Config::FromJson(std::move(resolved));
}

void CheckFields(std::string_view who, const VisitFields& fields) {
  Problems problems{std::string(who)};
  FieldChecker checker(&problems);
  fields(checker);
  problems.ThrowIfAny();
}

std::vector<std::string> KeysFreeOnResume(const VisitFields& fields) {
  NameCollector collector;
  fields(collector);
  return collector.free_on_resume();
}

}  // namespace lopt
