#include "lopt/base/describe_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "lopt/base/config.h"
#include "lopt/base/field_values.h"
#include "lopt/base/type_table.h"

namespace lopt {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kRequired[] = "required";

std::string Code(std::string_view text) { return fmt::format("`{}`", text); }

// The names of some things, in their order.
template <class Things, class Name>
std::string Codes(const Things& things, Name name) {
  std::vector<std::string> shown;
  for (const auto& thing : things) shown.push_back(Code(std::invoke(name, thing)));
  return fmt::format("{}", fmt::join(shown, ", "));
}

std::string ValueCode(const Json& value) { return Code(value.dump()); }

std::string NumberDefault(const Json& value, double number, const Range& range) {
  return Contains(range, number) ? ValueCode(value) : kRequired;
}

// A kind of number and its range: "integer in [1, 8]".
std::string InRange(std::string_view kind, const Range& range) {
  const std::string words = RangeWords(range);
  return words.empty() ? std::string(kind) : fmt::format("{} {}", kind, words);
}

// Adds a row for every field.
class Describer : public FieldVisitor {
 public:
  explicit Describer(const NameTypes& name_types) : name_types_(name_types) {}

  void Field(const char* name, bool* value, const char* meaning) override {
    Row(name, "true or false", ValueCode(Json(*value)), meaning);
  }
  void Field(const char* name, int64_t* value, Range range, const char* meaning) override {
    Row(name, InRange("integer", range), NumberDefault(*value, static_cast<double>(*value), range),
        meaning);
  }
  void Field(const char* name, double* value, Range range, const char* meaning) override {
    Row(name, InRange("number", range), NumberDefault(*value, *value, range), meaning);
  }
  void Field(const char* name, std::optional<double>* value, Range range,
             const char* meaning) override {
    Row(name, InRange("null or number", range),
        ValueCode(value->has_value() ? Json(**value) : Json(nullptr)), meaning);
  }
  void Field(const char* name, std::optional<int64_t>* value, Range range,
             const char* meaning) override {
    Row(name, InRange("null or integer", range),
        ValueCode(value->has_value() ? Json(**value) : Json(nullptr)), meaning);
  }
  void Field(const char* name, std::vector<int64_t>* value, Range range,
             const char* meaning) override {
    Row(name, InRange("list of integers", range), ValueCode(Json(*value)), meaning);
  }
  void Field(const char* name, std::vector<double>* value, Range range,
             const char* meaning) override {
    Row(name, InRange("list of numbers", range), ValueCode(Json(*value)), meaning);
  }
  void Field(const char* name, std::string* value, const char* meaning) override {
    Row(name, "text", ValueCode(Json(*value)), meaning);
  }
  void Field(const char* name, std::vector<std::string>* value, const char* meaning) override {
    Row(name, "list of texts", ValueCode(Json(*value)), meaning);
  }
  void Typed(const char* name, Config* value, const TypeTable& types,
             const char* meaning) override {
    const std::vector<std::pair<std::string, Config>>& names = types.short_names();
    const auto in_short = std::ranges::find_if(names, [&](const auto& entry) {
      return !value->empty() && entry.second.json() == value->json();
    });
    Row(name, ShortNames(names) + "object, " + name_types_(types),
        value->empty()            ? kRequired
        : in_short == names.end() ? ValueCode(value->json())
                                  : ValueCode(Json(in_short->first)),
        meaning);
  }
  void Typed(const char* name, std::vector<Config>* value, const TypeTable& types,
             const char* meaning) override {
    Json list = Json::array();
    for (const Config& config : *value) {
      list.push_back(config.json());
    }
    Row(name, "list of objects, " + name_types_(types), ValueCode(list), meaning);
  }

  FieldVisitor& FreeOnResume() override {
    free_on_resume_ = true;
    return *this;
  }

  std::vector<FieldRow> Take() { return std::move(rows_); }

 private:
  void Number(const char* name, int64_t* value, ChoiceTable table, const char* meaning) override {
    const char* chosen = FindName(table, *value);
    Row(name, Choices(table), chosen == nullptr ? kRequired : ValueCode(Json(chosen)), meaning);
  }
  void NumberList(const char* name, std::vector<int64_t>* value, ChoiceTable table,
                  const char* meaning) override {
    Json list = Json::array();
    for (const int64_t number : *value) list.push_back(FindName(table, number));
    Row(name, "list of " + Choices(table), ValueCode(list), meaning);
  }

  // Those that stand for objects, before the objects' types.
  static std::string ShortNames(const std::vector<std::pair<std::string, Config>>& names) {
    return names.empty() ? "" : Codes(names, &std::pair<std::string, Config>::first) + "; ";
  }

  static std::string Choices(ChoiceTable table) { return Codes(table, &Named<int64_t>::name); }

  void Row(const char* name, std::string value, std::string default_value, const char* meaning) {
    const bool free_on_resume = std::exchange(free_on_resume_, false);
    rows_.push_back({Code(name), std::move(value), std::move(default_value),
                     meaning + std::string(free_on_resume ? " May change on resume." : "")});
  }

  const NameTypes& name_types_;
  bool free_on_resume_ = false;  // the next one
  std::vector<FieldRow> rows_;
};

}  // namespace

std::string ListTypes(const TypeTable& types) {
  return fmt::format("{}: {}", types.kind(), Codes(types.entries(), &TypeEntry::type));
}

std::vector<FieldRow> FieldRows(const VisitFields& fields, const NameTypes& name) {
  Describer describer(name);
  fields(describer);
  return describer.Take();
}

std::string FieldList(const std::vector<FieldRow>& rows) {
  std::string list;
  for (const FieldRow& row : rows) {
    const bool required = row.default_value == kRequired;
    list += fmt::format("- {}: {}; {}{}. {}\n", row.key, row.value, required ? "" : "default ",
                        row.default_value, row.meaning);
  }
  return list;
}

std::string DescribeFields(const VisitFields& fields, const NameTypes& name) {
  return FieldList(FieldRows(fields, name));
}

}  // namespace lopt
