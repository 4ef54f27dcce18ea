#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "lopt/base/options.h"
#include "lopt/base/type_table.h"

namespace lopt {

// Where the types come from that a program does not have itself, for its messages.
inline constexpr const char* kTypesOfPlugins = "others come with plug-ins (--plugin FILE)";

// Makes things of one kind from their configs. A folder's registry() returns the one of the process
// with the built-in types in it; a user's main adds its own before it reads a config:
//   TaskRegistry().Add<MyOptions>("MyTask", "What it is.", [](const MyOptions& o, const
//   TaskResources&) { return std::make_shared<MyTask>(o); });
// Adding is not thread-safe.
template <class Made, class... Args>
class Registry {
 public:
  // What is made: immutable, owned by all who hold it.
  using Pointer = std::shared_ptr<const Made>;

  // `kind` is what messages call the things that it makes ("task"); `elsewhere` says where types
  // come from that are not here, for messages; may be empty.
  explicit Registry(std::string kind, std::string elsewhere = "")
      : table_(std::move(kind), std::move(elsewhere)) {}

  // `make` takes (const Options&, Args...) and returns something that converts to Pointer. Options
  // has a Visit(FieldVisitor&).
  template <class Options, class Make>
  void Add(const std::string& type, std::string summary, Make make) {
    Add({type, std::move(summary), [](FieldVisitor& v) { Options().Visit(v); }},
        [make](const Config& config, Args... args) -> Pointer {
          return make(ReadOptions<Options>(config), args...);
        });
  }
  // A type whose options are known at run time alone: `make` reads the config itself.
  void Add(TypeEntry entry, std::function<Pointer(const Config&, Args...)> make) {
    const std::string type = entry.type;
    table_.Add(std::move(entry));
    makers_[type] = std::move(make);
  }

  // Throws Error if a type of the other registry is here already.
  void CheckAreNew(const Registry& other) const {
    for (const TypeEntry& entry : other.table_.entries()) table_.CheckIsNew(entry.type);
  }

  // Takes over all types of another registry, those of a plug-in. They must all be new.
  void AddAll(const Registry& other, const std::string& plugin) {
    for (TypeEntry entry : other.table_.entries()) {
      entry.plugin = plugin;
      table_.Add(std::move(entry));
    }
    makers_.insert(other.makers_.begin(), other.makers_.end());
  }

  // Throws Error as ReadFields does, and what the type's constructor throws.
  Pointer Make(const Config& config, Args... args) const {
    return makers_.at(table_.Find(config).type)(config, args...);
  }

  // The types with their options, for descriptions and for FieldVisitor::Typed.
  const TypeTable& table() const { return table_; }

 private:
  TypeTable table_;
  std::map<std::string, std::function<Pointer(const Config&, Args...)>> makers_;
};

}  // namespace lopt
