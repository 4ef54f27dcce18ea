#include "lopt/base/type_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/fields.h"
#include "lopt/base/nearest_name.h"
#include "lopt/base/option_words.h"
#include "lopt/base/problems.h"
#include "lopt/base/strict_json.h"

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
  CheckIsNew(entry.type);
  entries_.push_back(std::move(entry));
}

void TypeTable::CheckIsNew(const std::string& type) const {
  const auto found = std::ranges::find(entries_, type, &TypeEntry::type);
  if (found == entries_.end()) return;
  Fail("{} type '{}' is registered already{}", kind_, type,
       found->plugin.empty() ? "" : ", by plug-in " + found->plugin);
}

const TypeEntry& TypeTable::Find(const Config& config) const {
  Problems problems("config");
  const TypeEntry* entry = Find(config, &problems);
  problems.ThrowIfAny();
  return *entry;
}

const TypeEntry* TypeTable::Find(const Config& config, Problems* problems) const {
  const auto path = [&] { return JoinKey(config.path(), "type"); };
  if (config.empty() || !config.json().contains("type")) {
    problems->Add(fmt::format("'{}' is missing; {}", path(), ValidTypes()));
    return nullptr;
  }
  const nlohmann::ordered_json& json = config.json()["type"];
  if (!json.is_string()) {
    problems->Add(
        fmt::format("'{}' must be text, got {}; {}", path(), ShowJson(json), ValidTypes()));
    return nullptr;
  }
  const std::string& type = json.get_ref<const std::string&>();
  const auto found = std::ranges::find(entries_, type, &TypeEntry::type);
  if (found == entries_.end()) {
    // The plug-ins of the program.
    const bool elsewhere = !elsewhere_.empty() && CurrentCaller() == Caller::kCommandLine;
    problems->Add(fmt::format("'{}' is '{}'; {}{}{}", path(), type, ValidTypes(),
                              elsewhere ? "; " + elsewhere_ : "",
                              DidYouMean(type, TypeNames(entries_))));
    return nullptr;
  }
  return &*found;
}

std::string TypeTable::ValidTypes() const {
  std::string text =
      fmt::format("valid types of {}: {}", kind_, fmt::join(TypeNames(entries_), ", "));
  std::vector<std::string> names;
  for (const auto& [name, stands_for] : short_names_) names.push_back(ShowJson(name));
  if (!names.empty()) text += fmt::format("; in short: {}", fmt::join(names, ", "));
  return text;
}

}  // namespace lopt
