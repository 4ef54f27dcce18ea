#pragma once

#include <string>

namespace lopt {

// Files of the build and of the sources. A test run as a user who cannot reach them is given
// copies: LOPT_TEST_BUILD_DIR and LOPT_TEST_SOURCE_DIR say where these are.
std::string BuildPath(const std::string& file);
std::string SourcePath(const std::string& file);

}  // namespace lopt
