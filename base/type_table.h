#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lopt {

class Config;
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
  // Throws Error likewise.
  void CheckIsNew(const std::string& type) const;
  // As given to the constructor.
  const std::string& kind() const { return kind_; }
  // All of them.
  const std::vector<TypeEntry>& entries() const { return entries_; }
  // Throws Error with the path, the value and the valid types.
  const TypeEntry& Find(const Config& config) const;
  // Or null, and that message added to `problems`.
  const TypeEntry* Find(const Config& config, Problems* problems) const;
  // "valid types of task: Quadratic, ImageMLP", for messages.
  std::string ValidTypes() const;

 private:
  std::string kind_;
  std::string elsewhere_;
  std::vector<TypeEntry> entries_;
};

}  // namespace lopt
