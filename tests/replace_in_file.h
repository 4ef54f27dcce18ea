#pragma once

#include <string>

#include "lopt/base/error.h"
#include "lopt/base/file.h"

namespace lopt {

// Replaces the first `from` in a file, which must hold one.
inline void ReplaceInFile(const std::string& path, const std::string& from, const std::string& to) {
  std::string text = ReadTextFile(path);
  const size_t at = text.find(from);
  Require(at != std::string::npos, "{} does not hold '{}'", path, from);
  WriteTextFile(path, text.replace(at, from.size(), to));
}

}  // namespace lopt
