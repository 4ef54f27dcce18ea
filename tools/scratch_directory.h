#pragma once

#include <string>

namespace lopt {

// A directory for temporary files, which is removed with all that is in it.
class ScratchDirectory {
 public:
  // `purpose` is a part of its name. Throws Error if it cannot be made.
  explicit ScratchDirectory(const std::string& purpose);
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  // The path of a file in it.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace lopt
