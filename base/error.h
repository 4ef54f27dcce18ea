#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace lopt {

// What every part of the project throws on bad input. The message names who found it, what was
// wanted, what was got and, where there is a choice, the valid ones. It is written for the user and
// carries no source position.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Error with the formatted message.
template <class... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// Throws Error with the formatted message unless `ok`. The arguments are evaluated in either case.
template <class... Args>
void Require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]] {
    Fail(format, std::forward<Args>(args)...);
  }
}

// The system's words for an errno. It is to be taken before anything else is called.
inline std::string SystemReason(int error) { return std::generic_category().message(error); }

}  // namespace lopt
