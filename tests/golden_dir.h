#pragma once

#include <cstdlib>
#include <string>

namespace lopt {

// Where the traces that tests compare with are: LOPT_GOLDEN_DIR if it is set, else the copies in
// the repository.
inline std::string GoldenPath(const std::string& file) {
  const char* directory = std::getenv("LOPT_GOLDEN_DIR");
  return std::string(directory != nullptr ? directory : LOPT_SOURCE_DIR "/tests/golden") + "/" +
         file;
}

}  // namespace lopt
