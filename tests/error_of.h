#pragma once

#include <functional>
#include <string>

#include "lopt/base/error.h"

namespace lopt {

// The message of the Error that `call` throws; "no error" if it throws none.
inline std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace lopt
