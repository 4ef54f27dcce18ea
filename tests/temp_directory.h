#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "lopt/base/error.h"

namespace lopt {

// A fresh directory that is removed, with what is in it, at the end. Its name has no links, so that
// it is the one that the system says.
class TempDirectory {
 public:
  TempDirectory()
      : path_(std::filesystem::canonical(std::filesystem::temp_directory_path()) /
              "lopt-test-XXXXXX") {
    Require(::mkdtemp(path_.data()) != nullptr, "cannot make a directory like {}", path_);
  }
  ~TempDirectory() { std::filesystem::remove_all(path_); }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& file) const { return path_ + "/" + file; }

 private:
  std::string path_;
};

}  // namespace lopt
