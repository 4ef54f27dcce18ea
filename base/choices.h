#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lopt {

// The name of one value of an enum. All of them in one table are the enum's valid values, in the
// order in which messages list them:
//   enum class LossType { kMean, kMin };
//   inline constexpr Named<LossType> kLossTypes[] = {{LossType::kMean, "mean"},
//                                                    {LossType::kMin, "min"}};
// That table reads and writes configs (FieldVisitor::Choice), messages and files.
template <class Enum>
struct Named {
  Enum value;        // of the enum
  const char* name;  // in configs, messages and files
};

// A table of any enum.
using ChoiceTable = std::span<const Named<int64_t>>;

// The name of a value, or null if the table does not have it.
const char* FindName(ChoiceTable table, int64_t value);
// Sets `value` and returns true if the table has the name.
bool FindValue(ChoiceTable table, std::string_view name, int64_t* value);
// "one of mean, min".
std::string ChoiceWords(ChoiceTable table);
// "; did you mean 'mean'?" or "", as DidYouMean.
std::string NearestChoice(ChoiceTable table, std::string_view name);

// What NameOf throws.
[[noreturn]] void FailValue(std::string_view what, int64_t value, ChoiceTable table);
// What ValueOf throws.
[[noreturn]] void FailName(std::string_view what, std::string_view name, ChoiceTable table);

// A table with its values as numbers.
template <size_t n>
struct NumberedChoices {
  Named<int64_t> entries[n];  // in the order of the table

  // Of an enum's table.
  template <class Enum>
  explicit NumberedChoices(const Named<Enum> (&table)[n]) {
    for (size_t i = 0; i < n; ++i) {
      entries[i] = {static_cast<int64_t>(table[i].value), table[i].name};
    }
  }
};
// Their number follows from the table.
template <class Enum, size_t n>
NumberedChoices(const Named<Enum> (&table)[n]) -> NumberedChoices<n>;

// The name of a value. Throws Error that says what ("split") and lists the choices if the table
// does not have it.
template <class Enum, size_t n>
const char* NameOf(std::string_view what, Enum value, const Named<Enum> (&table)[n]) {
  for (const Named<Enum>& entry : table) {
    if (entry.value == value) return entry.name;
  }
  FailValue(what, static_cast<int64_t>(value), NumberedChoices(table).entries);
}

// The value of a name. Throws Error likewise.
template <class Enum, size_t n>
Enum ValueOf(std::string_view what, std::string_view name, const Named<Enum> (&table)[n]) {
  for (const Named<Enum>& entry : table) {
    if (name == entry.name) return entry.value;
  }
  FailName(what, name, NumberedChoices(table).entries);
}

}  // namespace lopt
