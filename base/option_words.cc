#include "lopt/base/option_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

namespace lopt {

namespace {

std::atomic<Caller> current_caller = Caller::kCommandLine;

bool InPython() { return current_caller == Caller::kPython; }

// The argument of a Python function that is this option: of the same name, or of one that Python
// can say.
std::string ArgumentOf(std::string option) {
  if (option == "from") return "from_step";
  std::ranges::replace(option, '-', '_');
  return option;
}

}  // namespace

void SetCaller(Caller caller) { current_caller = caller; }

Caller CurrentCaller() { return current_caller; }

std::string FlagWords(const std::string& option) {
  return InPython() ? ArgumentOf(option) + "=True" : "--" + option;
}

std::string OptionWords(const std::string& option, const std::string& value) {
  if (InPython()) return fmt::format("{}={}", ArgumentOf(option), value);
  return fmt::format("--{}{}{}", option, value.empty() ? "" : " ", value);
}

std::string KeyWords(const std::string& key) {
  if (InPython()) return key;
  std::string option = key;
  std::ranges::replace(option, '_', '-');
  return fmt::format("{}, --{}", key, option);
}

}  // namespace lopt
