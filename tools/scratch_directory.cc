#include "lopt/tools/scratch_directory.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "lopt/base/error.h"

namespace lopt {

ScratchDirectory::ScratchDirectory(const std::string& purpose) {
  std::error_code error;
  path_ = std::filesystem::temp_directory_path(error) / fmt::format("lopt-{}-XXXXXX", purpose);
  Require(!error, "TMPDIR is no directory: {}", error.message());
  Require(::mkdtemp(path_.data()) != nullptr, "cannot make a directory like {} (TMPDIR)", path_);
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lopt
