#include "lopt/base/choices.h"

#include <fmt/format.h>

#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/nearest_name.h"

namespace lopt {
namespace {

std::vector<std::string> ChoiceNames(ChoiceTable table) {
  std::vector<std::string> names;
  for (const Named<int64_t>& entry : table) {
    names.emplace_back(entry.name);
  }
  return names;
}

}  // namespace

const char* FindName(ChoiceTable table, int64_t value) {
  for (const Named<int64_t>& entry : table) {
    if (entry.value == value) {
      return entry.name;
    }
  }
  return nullptr;
}

bool FindValue(ChoiceTable table, std::string_view name, int64_t* value) {
  for (const Named<int64_t>& entry : table) {
    if (name == entry.name) {
      *value = entry.value;
      return true;
    }
  }
  return false;
}

std::string ChoiceWords(ChoiceTable table) {
  return fmt::format("one of {}", fmt::join(ChoiceNames(table), ", "));
}

std::string NearestChoice(ChoiceTable table, std::string_view name) {
  return DidYouMean(name, ChoiceNames(table));
}

void FailValue(std::string_view what, int64_t value, ChoiceTable table) {
  Fail("There is no {} number {}; choices: {}", what, value, fmt::join(ChoiceNames(table), ", "));
}

void FailName(std::string_view what, std::string_view name, ChoiceTable table) {
  Fail("There is no {} '{}'; choices: {}{}", what, name, fmt::join(ChoiceNames(table), ", "),
       NearestChoice(table, name));
}

}  // namespace lopt
