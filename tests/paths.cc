#include "tests/paths.h"

#include <cstdlib>

namespace lopt {
namespace {

std::string In(const char* variable, const char* built, const std::string& file) {
  const char* directory = std::getenv(variable);
  return std::string(directory != nullptr ? directory : built) + "/" + file;
}

}  // namespace

std::string BuildPath(const std::string& file) {
  return In("LOPT_TEST_BUILD_DIR", LOPT_BINARY_DIR, file);
}
std::string SourcePath(const std::string& file) {
  return In("LOPT_TEST_SOURCE_DIR", LOPT_SOURCE_DIR, file);
}

}  // namespace lopt
