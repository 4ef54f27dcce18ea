#include "base/choices.h"

#include <fmt/format.h>

#include <vector>

#include "base/error.h"
#include "base/nearest_name.h"

namespace lopt {
namespace {

std::vector<std::string> Names(ChoiceTable table) {
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
  return fmt::format("one of {}", fmt::join(Names(table), ", "));
}

std::string NearestChoice(ChoiceTable table, std::string_view name) {
  return DidYouMean(name, Names(table));
}

void FailValue(std::string_view what, int64_t value, ChoiceTable table) {
  Fail("There is no {} number {}; choices: {}", what, value, fmt::join(Names(table), ", "));
}

void FailName(std::string_view what, std::string_view name, ChoiceTable table) {
  Fail("There is no {} '{}'; choices: {}{}", what, name, fmt::join(Names(table), ", "),
       NearestChoice(table, name));
}

}  // namespace lopt
