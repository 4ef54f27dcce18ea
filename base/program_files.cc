#include "lopt/base/program_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/platform.h"

namespace lopt {
namespace {

// Who but root, this user and `owners` may change a file or directory; a link itself unless
// `follow` is set.
std::string Objection(const std::filesystem::path& path, bool follow,
                      const std::vector<uid_t>& owners) {
  struct stat found = {};
  if ((follow ? ::stat(path.c_str(), &found) : ::lstat(path.c_str(), &found)) != 0) {
    return fmt::format("{}: {}", path.string(), SystemReason(errno));
  }
  if (found.st_uid != 0 && found.st_uid != ::geteuid() &&
      std::ranges::find(owners, found.st_uid) == owners.end()) {
    return fmt::format("user {} owns {}", found.st_uid, path.string());
  }
  // In a directory with the sticky bit nobody replaces what is another's.
  const bool sticky = S_ISDIR(found.st_mode) && (found.st_mode & S_ISVTX) != 0;
  if ((found.st_mode & S_IWOTH) != 0 && !S_ISLNK(found.st_mode) && !sticky) {
    return fmt::format("everybody may write to {}", path.string());
  }
  return "";
}

}  // namespace

std::optional<std::filesystem::path> ProgramDirectory() {
  const std::filesystem::path program = ProgramPath();
  if (program.empty()) return std::nullopt;
  return program.parent_path();
}

std::optional<std::filesystem::path> OwnLibraryDirectory() {
  const std::filesystem::path library = OwnLibraryPath();
  if (library.empty()) return std::nullopt;
  return library.parent_path();
}

std::string WhoElseMayChange(const std::filesystem::path& path) {
  std::vector<uid_t> owners;
  for (const std::string& running : {ProgramPath(), OwnLibraryPath()}) {
    struct stat found = {};
    if (::stat(running.c_str(), &found) == 0) owners.push_back(found.st_uid);
  }
  std::string why = Objection(path, false, owners);
  if (why.empty()) why = Objection(path, true, owners);
  if (why.empty()) why = Objection(path.parent_path(), true, owners);
  return why;
}

}  // namespace lopt
