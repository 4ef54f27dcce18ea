#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/file.h"

namespace lopt {

// A record is a struct that shows its members once, by name and in order:
//   template <class Visitor>
//   void VisitMembers(Visitor& visit) {
//     visit("host", host);
//     visit("updates", updates);
//   }
// Here it becomes JSON and is read back: the form of manifests and status files. A member is true
// or false, an integer, a finite number, a text, a Config (any object), a record, a list or a map
// by name of such things, or a std::optional of one, which is left out where it has no value. A
// record that is a whole file of a known format has `static constexpr const char* kFormat`; the
// file then begins with it, as "format".

// Whether a record of this format ("lopt run") is in the file, in any version and also where it is
// damaged. Throws Error if the file cannot be read.
bool HoldsRecord(const std::string& path, std::string_view format);

// Writes the members of a record into a JSON object.
class RecordWriter {
 public:
  explicit RecordWriter(nlohmann::ordered_json* object);

  template <class T>
  void operator()(const std::string& name, const T& value) {
    Put(Member(name), value);
  }
  template <class T>
  void operator()(const std::string& name, const std::optional<T>& value) {
    if (value.has_value()) {
      Put(Member(name), *value);
    }
  }

 private:
  using Json = nlohmann::ordered_json;

  Json* Member(const std::string& name);
  static Json* AddElement(Json* list);
  static void MakeList(Json* to);
  static void PutInteger(Json* to, int64_t value);
  static void Put(Json* to, bool value);
  static void Put(Json* to, double value);
  static void Put(Json* to, const std::string& value);
  static void Put(Json* to, const Config& value);
  template <class T>
  static void Put(Json* to, const std::vector<T>& list) {
    MakeList(to);
    for (const T& element : list) {
      Put(AddElement(to), element);
    }
  }
  template <class T>
  static void Put(Json* to, const std::map<std::string, T>& named) {
    RecordWriter writer(to);
    for (const auto& [name, value] : named) {
      writer(name, value);
    }
  }
  template <class T>
  static void Put(Json* to, const T& value) {
    if constexpr (std::is_integral_v<T>) {
      PutInteger(to, static_cast<int64_t>(value));
    } else {
      RecordWriter writer(to);
      const_cast<T&>(value).VisitMembers(writer);  // which only reads
    }
  }

  Json* object_;
};

// Reads the members of a record from a JSON object.
class RecordReader {
 public:
  // `source` and the path of the object in it are for messages.
  RecordReader(const nlohmann::ordered_json& object, const std::string& source, std::string path);

  template <class T>
  void operator()(const std::string& name, T& value) {
    Get(Member(name), PathOf(name), &value);
  }
  template <class T>
  void operator()(const std::string& name, std::optional<T>& value) {
    if (IsGiven(name)) {
      (*this)(name, value.emplace());
    }
  }
  // Throws Error if the object has a member that is none of the record's.
  void End() const;

 private:
  using Json = nlohmann::ordered_json;

  bool IsGiven(const std::string& name);
  const Json& Member(const std::string& name);
  std::string PathOf(const std::string& name) const;
  static std::string PathOf(const std::string& list, size_t index);
  [[noreturn]] void FailAt(const std::string& path, std::string_view wanted, const Json& got) const;
  std::vector<const Json*> Elements(const Json& from, const std::string& path) const;
  std::vector<std::string> Names() const;
  int64_t Integer(const Json& from, const std::string& path, int64_t min, int64_t max) const;
  void Get(const Json& from, const std::string& path, bool* value) const;
  void Get(const Json& from, const std::string& path, double* value) const;
  void Get(const Json& from, const std::string& path, std::string* value) const;
  void Get(const Json& from, const std::string& path, Config* value) const;
  template <class T>
  void Get(const Json& from, const std::string& path, std::vector<T>* list) const {
    for (const Json* element : Elements(from, path)) {
      const std::string element_path = PathOf(path, list->size());
      Get(*element, element_path, &list->emplace_back());
    }
  }
  template <class T>
  void Get(const Json& from, const std::string& path, std::map<std::string, T>* named) const {
    RecordReader reader(from, source_, path);
    for (const std::string& name : reader.Names()) {
      reader(name, (*named)[name]);
    }
  }
  template <class T>
  void Get(const Json& from, const std::string& path, T* value) const {
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      constexpr int64_t kMax = std::is_same_v<T, uint64_t> ? std::numeric_limits<int64_t>::max()
                                                           : static_cast<int64_t>(Limits::max());
      *value = static_cast<T>(Integer(from, path, static_cast<int64_t>(Limits::min()), kMax));
    } else {
      RecordReader reader(from, source_, path);
      value->VisitMembers(reader);
      reader.End();
    }
  }

  const Json& object_;
  const std::string& source_;
  std::string path_;
  std::vector<std::string> members_;  // of the record
};

// The JSON text that `write` makes, indented by `indent`; in one line if that is -1.
std::string WriteRecordText(const char* format, const std::function<void(RecordWriter&)>& write,
                            int indent);
// `format`: what must be there; null for a record without.
void ReadRecordText(std::string_view text, const std::string& source, const char* format,
                    const std::function<void(RecordReader&)>& read);

template <class Record>
constexpr const char* FormatOf() {
  if constexpr (requires { Record::kFormat; }) {
    return Record::kFormat;
  } else {
    return nullptr;
  }
}

// The record as JSON text. Throws Error if a number is not finite.
template <class Record>
std::string RecordText(const Record& record, int indent = -1) {
  return WriteRecordText(
      FormatOf<Record>(),
      [&](RecordWriter& writer) { const_cast<Record&>(record).VisitMembers(writer); }, indent);
}

// Throws Error that names `source` and the member: not JSON, another format, a member that is
// missing, unknown, twice there or of another type.
template <class Record>
Record ParseRecord(std::string_view text, const std::string& source) {
  Record record;
  ReadRecordText(text, source, FormatOf<Record>(),
                 [&](RecordReader& reader) { record.VisitMembers(reader); });
  return record;
}

// A file that holds one record and nothing else. Both throw Error that names the path; a reader
// sees the old file or the new one.
template <class Record>
Record ReadRecordFile(const std::string& path) {
  return ParseRecord<Record>(ReadTextFile(path), path);
}
template <class Record>
void WriteRecordFile(const std::string& path, const Record& record) {
  WriteTextFile(path, RecordText(record, 2) + "\n");
}

}  // namespace lopt
