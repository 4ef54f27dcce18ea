#pragma once

#include <string>
#include <string_view>

#include "lopt/base/file.h"

namespace lopt {

// A file that grows by small pieces, which are gathered in memory first.
class OutputFile {
 public:
  // `how`: OpenFor::kReplace or kAppend. Throws Error if it cannot be opened.
  OutputFile(const std::string& path, OpenFor how);
  // Writes what is left, where that still goes well.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // What cannot be written here is told by Flush.
  void Write(std::string_view text);
  // Hands all of it to the system. Throws Error if that fails or has failed before (a full disk).
  void Flush();
  // Forgets what was not handed over. Nothing is written any more, and Flush throws.
  void Drop();
  const std::string& path() const { return path_; }

 private:
  void HandOver();

  std::string path_;
  OpenFile file_;
  std::string gathered_;
  int error_ = 0;  // of the first write that failed; nothing is written after it
};

}  // namespace lopt
