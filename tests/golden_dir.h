#pragma once

#include <cstdlib>
#include <string>

#include "tests/paths.h"

namespace lopt {

// Where the traces that tests compare with are: LOPT_GOLDEN_DIR if it is set, else the copies in
// the repository.
inline std::string GoldenPath(const std::string& file) {
  const char* directory = std::getenv("LOPT_GOLDEN_DIR");
  return directory != nullptr ? std::string(directory) + "/" + file
                              : SourcePath("tests/golden/" + file);
}

}  // namespace lopt
