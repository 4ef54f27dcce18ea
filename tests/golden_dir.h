#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/paths.h"

namespace lopt {

// Where a trace that tests compare with is: in LOPT_GOLDEN_DIR, if that is set and has it, else in
// the repository's tests/golden.
inline std::string GoldenPath(const std::string& file) {
  if (const char* directory = std::getenv("LOPT_GOLDEN_DIR")) {
    std::string path = std::string(directory) + "/" + file;
    if (std::filesystem::exists(path)) return path;
  }
  return SourcePath("tests/golden/" + file);
}

}  // namespace lopt
