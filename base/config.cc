#include "lopt/base/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/strict_json.h"

namespace lopt {
namespace {

using Json = nlohmann::ordered_json;

std::optional<size_t> AsIndex(std::string_view text) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(index)
                                                                  : std::nullopt;
}

// "estimators[0].std" and "estimators.0.std" give {"estimators", "0", "std"}.
std::vector<std::string> SplitPath(std::string_view dotted) {
  std::vector<std::string> parts(1);
  bool ok = true;
  bool after_bracket = false;
  for (size_t i = 0; ok && i < dotted.size(); ++i) {
    if (dotted[i] == '.') {
      ok = !parts.back().empty();
      parts.emplace_back();
      after_bracket = false;
    } else if (dotted[i] == '[') {
      const size_t end = std::min(dotted.find(']', i), dotted.size());
      const std::string_view index = dotted.substr(i + 1, end - i - 1);
      ok = end < dotted.size() && AsIndex(index).has_value() && !parts.back().empty();
      parts.emplace_back(index);
      after_bracket = true;
      i = end;
    } else {
      ok = !after_bracket;
      parts.back() += dotted[i];
    }
  }
  Require(ok && !parts.back().empty(),
          "config: '{}' is not a path of keys such as estimators[0].std", dotted);
  return parts;
}

std::string KeysOf(const Json& object) {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : object.items()) {
    keys.push_back(key);
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

std::string Shown(std::string_view path) {
  return path.empty() ? "the config" : fmt::format("'{}'", path);
}

// The element of `value` (which is at `path`) that `part` names. `may_be_new`: a key that an
// object does not have is added.
Json* Step(Json* value, const std::string& path, const std::string& part, bool may_be_new) {
  if (value->is_array()) {
    const std::optional<size_t> index = AsIndex(part);
    Require(index.has_value() && *index < value->size(),
            "config: {} has {} elements, so there is no element '{}'", Shown(path), value->size(),
            part);
    return &(*value)[*index];
  }
  Require(value->is_object(), "config: '{}' does not exist: {} is {}", JoinKey(path, part),
          Shown(path), ShowJson(*value));
  Require(may_be_new || value->contains(part), "config: '{}' does not exist; keys of {}: {}",
          JoinKey(path, part), Shown(path), KeysOf(*value));
  return &(*value)[part];
}

Json ParseSetting(std::string_view value) {
  if (Json::accept(value.begin(), value.end(), true)) {
    return ParseStrictJson(value, fmt::format("config: value '{}'", value), true);
  }
  return std::string(value);
}

// The values of `a` and `b`, where they are there, at one path.
void Compare(const Json* a, const Json* b, const std::string& path,
             const std::function<void(const std::string&, const Json*, const Json*)>& report) {
  if (a != nullptr && b != nullptr && a->is_object() && b->is_object()) {
    for (const auto& [key, value] : a->items()) {
      Compare(&value, b->contains(key) ? &(*b)[key] : nullptr, JoinKey(path, key), report);
    }
    for (const auto& [key, value] : b->items()) {
      if (!a->contains(key)) {
        report(JoinKey(path, key), nullptr, &value);
      }
    }
  } else if (a != nullptr && b != nullptr && a->is_array() && b->is_array()) {
    for (size_t i = 0; i < std::max(a->size(), b->size()); ++i) {
      Compare(i < a->size() ? &(*a)[i] : nullptr, i < b->size() ? &(*b)[i] : nullptr,
              JoinIndex(path, i), report);
    }
  } else if (a == nullptr || b == nullptr || *a != *b) {
    report(path, a, b);
  }
}

}  // namespace

Config Config::Parse(std::string_view text, const std::string& source) {
  Json json = ParseStrictJson(text, source, true);
  if (!json.is_object()) {
    Fail("{}: line 1: a config must be a JSON object, got {}", source, ShowJson(json));
  }
  return FromJson(std::move(json));
}

Config Config::Load(const std::string& path) { return Parse(ReadTextFile(path), path); }

Config Config::FromJson(nlohmann::ordered_json json, std::string path) {
  if (!json.is_object()) {
    Fail("config: {} must be an object, got {}", Shown(path), ShowJson(json));
  }
  Config config;
  config.json_ = std::make_shared<const Json>(std::move(json));
  config.path_ = std::move(path);
  return config;
}

const nlohmann::ordered_json& Config::json() const {
  if (empty()) Fail("config: {} is missing", Shown(path_));
  return *json_;
}

std::string Config::Type() const {
  const auto type = json().find("type");
  Require(type != json().end(), "config: '{}' is missing", JoinKey(path_, "type"));
  if (!type->is_string()) {
    Fail("config: '{}' must be text, got {}", JoinKey(path_, "type"), ShowJson(*type));
  }
  return type->get<std::string>();
}

std::string Config::Dump(int indent) const { return JsonText(json(), indent); }

Config Config::With(std::string_view dotted, std::string_view value) const {
  const std::vector<std::string> parts = SplitPath(dotted);
  Json copy = json();
  Json* at = &copy;
  std::string path = path_;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_list = at->is_array();
    at = Step(at, path, parts[i], i + 1 == parts.size());
    path = is_list ? fmt::format("{}[{}]", path, parts[i]) : JoinKey(path, parts[i]);
  }
  *at = ParseSetting(value);
  try {
    at->dump();
  } catch (const Json::type_error&) {
    Fail("config: the value for '{}' is not UTF-8", path);
  }
  return FromJson(std::move(copy), path_);
}

std::vector<std::string> Config::Differences(const Config& other,
                                             const std::vector<std::string>& ignored,
                                             std::string_view here, std::string_view there) const {
  const auto without_ignored = [&](const Config& config) {
    Json copy = config.json();
    for (const std::string& key : ignored) {
      copy.erase(key);
    }
    return copy;
  };
  const Json mine = without_ignored(*this);
  const Json others = without_ignored(other);
  std::vector<std::string> lines;
  Compare(&mine, &others, path_, [&](const std::string& path, const Json* a, const Json* b) {
    const auto show = [](const Json* value) { return value ? value->dump() : "absent"; };
    lines.push_back(fmt::format("{}: {} {}, {} {}", path, show(a), here, show(b), there));
  });
  return lines;
}

}  // namespace lopt
