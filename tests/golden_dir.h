#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/paths.h"

namespace lopt {

// Where a trace that tests compare with is: in the repository's tests/golden, or, where that lacks
// it, in LOPT_GOLDEN_DIR.
inline std::string GoldenPath(const std::string& file) {
  std::string own = SourcePath("tests/golden/" + file);
  const char* directory = std::getenv("LOPT_GOLDEN_DIR");
  return directory == nullptr || std::filesystem::exists(own) ? own
                                                              : std::string(directory) + "/" + file;
}

}  // namespace lopt
