#include "lopt/base/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lopt/base/error.h"
#include "lopt/base/strict_json.h"

namespace lopt {
namespace {

constexpr const char* kFormatMember = "format";

}  // namespace

bool HoldsRecord(const std::string& path, std::string_view format) {
  return Exists(path) && ReadTextFile(path).find(fmt::format("\"{} ", format)) != std::string::npos;
}

RecordWriter::RecordWriter(Json* object) : object_(object) { *object = Json::object(); }

RecordWriter::Json* RecordWriter::Member(const std::string& name) {
  return AppendMember(object_, name);
}

RecordWriter::Json* RecordWriter::AddElement(Json* list) {
  list->push_back(nullptr);
  return &list->back();
}

void RecordWriter::MakeList(Json* to) { *to = Json::array(); }

void RecordWriter::PutInteger(Json* to, int64_t value) { *to = value; }

void RecordWriter::Put(Json* to, bool value) { *to = value; }

void RecordWriter::Put(Json* to, double value) {
  Require(std::isfinite(value), "{} cannot be written as JSON", value);
  *to = value;
}

void RecordWriter::Put(Json* to, const std::string& value) { *to = value; }

void RecordWriter::Put(Json* to, const Config& value) { *to = value.json(); }

RecordReader::RecordReader(const Json& object, const std::string& source, std::string path)
    : object_(object), source_(source), path_(std::move(path)) {
  if (!object.is_object()) {
    FailAt(path_, "an object", object);
  }
}

bool RecordReader::IsGiven(const std::string& name) {
  members_.push_back(name);
  return object_.contains(name);
}

const RecordReader::Json& RecordReader::Member(const std::string& name) {
  Require(IsGiven(name), "{}: '{}' is missing", source_, PathOf(name));
  return object_[name];
}

void RecordReader::End() const {
  for (const std::string& name : Names()) {
    Require(std::ranges::find(members_, name) != members_.end(),
            "{}: '{}' is unknown; there may be: {}", source_, PathOf(name),
            fmt::join(members_, ", "));
  }
}

std::string RecordReader::PathOf(const std::string& name) const { return JoinKey(path_, name); }

std::string RecordReader::PathOf(const std::string& list, size_t index) {
  return JoinIndex(list, index);
}

void RecordReader::FailAt(const std::string& path, std::string_view wanted, const Json& got) const {
  Fail("{}: {} must be {}, got {}", source_, path.empty() ? "it" : fmt::format("'{}'", path),
       wanted, ShowJson(got));
}

std::vector<const RecordReader::Json*> RecordReader::Elements(const Json& from,
                                                              const std::string& path) const {
  if (!from.is_array()) {
    FailAt(path, "a list", from);
  }
  std::vector<const Json*> elements;
  for (const Json& element : from) {
    elements.push_back(&element);
  }
  return elements;
}

std::vector<std::string> RecordReader::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items()) {
    names.push_back(name);
  }
  return names;
}

int64_t RecordReader::Integer(const Json& from, const std::string& path, int64_t min,
                              int64_t max) const {
  const bool fits =
      from.is_number_unsigned()
          ? from.get<uint64_t>() <= static_cast<uint64_t>(max)
          : from.is_number_integer() && from.get<int64_t>() >= min && from.get<int64_t>() <= max;
  if (!fits) {
    FailAt(path, fmt::format("an integer in [{}, {}]", min, max), from);
  }
  return from.get<int64_t>();
}

void RecordReader::Get(const Json& from, const std::string& path, bool* value) const {
  if (!from.is_boolean()) {
    FailAt(path, "true or false", from);
  }
  *value = from.get<bool>();
}

void RecordReader::Get(const Json& from, const std::string& path, double* value) const {
  if (!from.is_number()) {
    FailAt(path, "a number", from);
  }
  *value = from.get<double>();
}

void RecordReader::Get(const Json& from, const std::string& path, std::string* value) const {
  if (!from.is_string()) {
    FailAt(path, "text", from);
  }
  *value = from.get<std::string>();
}

void RecordReader::Get(const Json& from, const std::string& path, Config* value) const {
  if (!from.is_object()) {
    FailAt(path, "an object", from);
  }
  *value = Config::FromJson(from, path);
}

std::string WriteRecordText(const char* format, const std::function<void(RecordWriter&)>& write,
                            int indent) {
  nlohmann::ordered_json json;
  RecordWriter writer(&json);
  if (format != nullptr) {
    writer(kFormatMember, std::string(format));
  }
  write(writer);
  return JsonText(json, indent);
}

void ReadRecordText(std::string_view text, const std::string& source, const char* format,
                    const std::function<void(RecordReader&)>& read) {
  const nlohmann::ordered_json json = ParseStrictJson(text, source, false);
  RecordReader reader(json, source, "");
  if (format != nullptr) {
    std::string found;
    reader(kFormatMember, found);
    Require(found == format, "{}: its format is '{}', this program reads '{}'", source, found,
            format);
  }
  read(reader);
  reader.End();
}

}  // namespace lopt
