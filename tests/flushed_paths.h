#pragma once

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

// To be included by one file of a test executable: takes the place of the system's fsync.

namespace lopt {

// What was flushed to disk so far, by its name at the time.
inline std::vector<std::string> flushed_paths;

}  // namespace lopt

extern "C" int fsync(int descriptor) {
  lopt::flushed_paths.push_back(
      std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", descriptor)));
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}
