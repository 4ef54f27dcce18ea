#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/config.h"

namespace lopt {

class FieldVisitor;
class Problems;

// One type that a "type" key may name.
struct TypeEntry {
  std::string type;                           // as configs name it
  std::string summary;                        // one sentence
  std::function<void(FieldVisitor&)> fields;  // shows a default-constructed options struct
  std::string plugin = "";                    // the file that it comes from; empty: the program
};

// The types of one kind ("task", "estimator", ...), in the order they were added.
class TypeTable {
 public:
  // `kind` is what messages call them; `elsewhere` says where types come from that are not here,
  // for messages; may be empty.
  explicit TypeTable(std::string kind, std::string elsewhere = "")
      : kind_(std::move(kind)), elsewhere_(std::move(elsewhere)) {}
  // Throws Error if the type is there already.
  void Add(TypeEntry entry);
  // A text that a config may have in place of an object of this kind; what a config is resolved to
  // has it in place of that object, too.
  void AddShortName(std::string name, Config stands_for) {
    short_names_.emplace_back(std::move(name), std::move(stands_for));
  }
  // Throws Error likewise.
  void CheckIsNew(const std::string& type) const;
  // As given to the constructor.
  const std::string& kind() const { return kind_; }
  // All of them.
  const std::vector<TypeEntry>& entries() const { return entries_; }
  // The short names and what they stand for.
  const std::vector<std::pair<std::string, Config>>& short_names() const { return short_names_; }
  // Throws Error with the path, the value and the valid types.
  const TypeEntry& Find(const Config& config) const;
  // Or null, and that message added to `problems`.
  const TypeEntry* Find(const Config& config, Problems* problems) const;
  // "valid types of task: Quadratic, ImageMLP", for messages; short names are among them.
  std::string ValidTypes() const;

 private:
  std::string kind_;
  std::string elsewhere_;
  std::vector<TypeEntry> entries_;
  std::vector<std::pair<std::string, Config>> short_names_;
};

}  // namespace lopt
