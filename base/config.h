#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"

namespace lopt {

// A JSON object of a config file, keys in the file's order, together with the path of keys that
// leads to it ("estimators[0].task"), for messages. Immutable and cheap to copy.
class Config {
 public:
  Config() = default;  // no object: a key that must be given
  // `//` and `/* */` comments are allowed; two keys of one name, or anything but an object, are an
  // Error that names `source` and the line.
  static Config Parse(std::string_view text, const std::string& source);
  static Config Load(const std::string& path);
  // Throws Error unless `json` is an object.
  static Config FromJson(nlohmann::ordered_json json, std::string path = "");

  bool empty() const { return json_ == nullptr; }
  // Throws Error if there is no object.
  const nlohmann::ordered_json& json() const;
  const std::string& path() const { return path_; }
  // The value of "type". Throws Error if it is missing or not text.
  std::string Type() const;
  std::string Dump(int indent = 2) const;

  // A copy with the value at `dotted` ("estimators.0.std" or "estimators[0].std") replaced by
  // `value`: JSON, or text where it does not parse as JSON. The objects on the way must exist; the
  // last key may be new (reading it then checks it), a list does not grow. Throws Error otherwise.
  Config With(std::string_view dotted, std::string_view value) const;

  // One line per value that differs: "estimators[0].std: 0.01 here, 0.02 there" with the two given
  // words; a value that only one of them has is "absent" in the other. Keys named in `ignored` (top
  // level) are left out.
  std::vector<std::string> Differences(const Config& other, const std::vector<std::string>& ignored,
                                       std::string_view here, std::string_view there) const;

 private:
  std::shared_ptr<const nlohmann::ordered_json> json_;
  std::string path_;
};

// One type that a "type" key may name.
struct TypeEntry {
  std::string type;
  std::string summary;                        // one sentence
  std::function<void(FieldVisitor&)> fields;  // shows a default-constructed options struct
};

// The types of one kind ("task", "estimator", ...), in the order they were added.
class TypeTable {
 public:
  explicit TypeTable(std::string kind) : kind_(std::move(kind)) {}
  // Throws Error if the type is there already.
  void Add(TypeEntry entry);
  const std::string& kind() const { return kind_; }
  const std::vector<TypeEntry>& entries() const { return entries_; }
  // Throws Error with the path, the value and the valid types.
  const TypeEntry& Find(const Config& config) const;
  // "valid types of task: Quadratic, ImageMLP", for messages.
  std::string ValidTypes() const;

 private:
  std::string kind_;
  std::vector<TypeEntry> entries_;
};

using VisitFields = std::function<void(FieldVisitor&)>;

// Fills the fields from `config`. Unknown keys ("type" is known), wrong types, numbers out of
// range, missing keys, here or in a nested typed object: Error with the full path, the value and
// the valid choices. `fields` is called more than once and must show the same keys every time.
void ReadFields(const Config& config, const VisitFields& fields);
// All fields with their present values, in the order they are visited, nested typed objects
// resolved with their defaults as well (Error as from ReadFields); `type` becomes "type" unless
// empty. A typed key without a value is left out, an absent optional number is null. Throws Error
// if a number is not finite.
Config WriteFields(std::string_view type, const VisitFields& fields);
// Markdown: a table row per field with name, kind, default, valid values and meaning. Used by `lopt
// describe` and docs/config.md.
std::string DescribeFields(const VisitFields& fields);

template <class Options>
Options ReadOptions(const Config& config) {
  Options options;
  ReadFields(config, [&](FieldVisitor& v) { options.Visit(v); });
  return options;
}

template <class Options>
Config WriteOptions(std::string_view type, const Options& options) {
  Options copy = options;
  return WriteFields(type, [&](FieldVisitor& v) { copy.Visit(v); });
}

}  // namespace lopt
