#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lopt {

struct FilterResult {
  int exit_code = 0;  // 128 + the signal that ended it, if one did
  std::string output = {};
  std::string errors = {};
};

// Runs a program, the first of `words`, which is looked up in PATH, with `input` as its standard
// input, and waits for it. Nothing is written to disk. Throws Error with the system's reason if it
// cannot be run.
FilterResult RunFilter(const std::vector<std::string>& words, std::string_view input);

}  // namespace lopt
