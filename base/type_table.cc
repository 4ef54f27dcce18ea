#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/config.h"
#include "base/error.h"
#include "base/nearest_name.h"
#include "base/strict_json.h"

namespace lopt {
namespace {

std::vector<std::string> TypeNames(const std::vector<TypeEntry>& entries) {
  std::vector<std::string> names;
  for (const TypeEntry& entry : entries) {
    names.push_back(entry.type);
  }
  return names;
}

}  // namespace

void TypeTable::Add(TypeEntry entry) {
  Require(std::ranges::find(entries_, entry.type, &TypeEntry::type) == entries_.end(),
          "{} type '{}' is registered already", kind_, entry.type);
  entries_.push_back(std::move(entry));
}

const TypeEntry& TypeTable::Find(const Config& config) const {
  const std::string path = JoinKey(config.path(), "type");
  Require(!config.empty() && config.json().contains("type"), "config: '{}' is missing; {}", path,
          ValidTypes());
  const nlohmann::ordered_json& json = config.json()["type"];
  if (!json.is_string()) {
    Fail("config: '{}' must be text, got {}; {}", path, ShowJson(json), ValidTypes());
  }
  const std::string& type = json.get_ref<const std::string&>();
  const auto found = std::ranges::find(entries_, type, &TypeEntry::type);
  if (found == entries_.end()) {
    Fail("config: '{}' is '{}'; {}{}", path, type, ValidTypes(),
         DidYouMean(type, TypeNames(entries_)));
  }
  return *found;
}

std::string TypeTable::ValidTypes() const {
  return fmt::format("valid types of {}: {}", kind_, fmt::join(TypeNames(entries_), ", "));
}

}  // namespace lopt
