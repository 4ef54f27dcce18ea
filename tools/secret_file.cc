#include "lopt/tools/secret_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <iterator>

#include "lopt/base/environment.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"

namespace lopt {
namespace {

constexpr int64_t kMostSecretBytes = 1 << 20;

// The user's home; empty if there is none.
std::string HomeDirectory() {
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return home;
  const passwd* const entry = ::getpwuid(::geteuid());
  return entry != nullptr ? entry->pw_dir : "";
}

// Removes a file at the end.
class Removed {
 public:
  explicit Removed(const std::string& path) : path_(path) {}
  ~Removed() { ::unlink(path_.c_str()); }
  Removed(const Removed&) = delete;
  Removed& operator=(const Removed&) = delete;

 private:
  const std::string& path_;
};

std::string ReadAll(int descriptor, const std::string& path) {
  std::string text;
  std::array<char, 4096> some;
  ssize_t got = 0;
  while ((got = ::read(descriptor, some.data(), some.size())) > 0) {
    text.append(some.data(), static_cast<size_t>(got));
    if (std::ssize(text) > kMostSecretBytes) break;
  }
  if (got < 0) Fail("cannot read {}: {}", path, SystemReason(errno));
  return text;
}

}  // namespace

// The file that is checked is the one that is read, whoever moves names meanwhile.
std::string ReadSecretFile(const std::string& path) {
  const OpenFile file(path, OpenFor::kRead, "cannot read");
  struct stat status = {};
  if (::fstat(file.number(), &status) != 0) {
    Fail("cannot read {}: {}", path, SystemReason(errno));
  }
  Require(S_ISREG(status.st_mode), "{} is to be a secret, but it is no file", path);
  const bool of_root = status.st_uid == 0 && ::geteuid() != 0;
  Require(status.st_uid == ::geteuid() || of_root,
          "{} is to be a secret, but it belongs to another user (number {})", path, status.st_uid);
  Require((status.st_mode & (of_root ? 07U : 077U)) == 0,
          "{} is to be a secret, but others may read or write it (mode {:o}); say: chmod 600 {}",
          path, status.st_mode & 07777U, path);
  Require(status.st_size <= kMostSecretBytes, "{} is to be a secret, but it has {} bytes", path,
          status.st_size);
  return ReadAll(file.number(), path);
}

std::string UsersTokenFile() {
  const char* const config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config == '/') return fmt::format("{}/lopt/token", config);
  const std::string home = HomeDirectory();
  Require(!home.empty(),
          "this user has no home directory for the token of learners and workers; give "
          "--token-file or --insecure");
  return home + "/.config/lopt/token";
}

void MakeTokenFile(const std::string& path) {
  if (Exists(path)) return;
  Environment& environment = Environment::Current();
  MakeDirectories(path.substr(0, path.rfind('/')));
  std::string token;
  for (int i = 0; i < 4; ++i) token += fmt::format("{:016x}", environment.UniqueNumber());
  token += '\n';
  // Others see the name only once the text is there.
  const std::string made =
      fmt::format("{}.tmp.{}.{}", path, environment.ProcessId(), environment.UniqueNumber());
  const int file = ::open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  Require(file >= 0, "cannot make {}: {}; give --token-file or --insecure", path,
          SystemReason(errno));
  const Removed removed(made);
  const ssize_t written = ::write(file, token.data(), token.size());
  int error = written == std::ssize(token) ? 0 : written < 0 ? errno : ENOSPC;
  if (::close(file) != 0 && error == 0) error = errno;
  Require(error == 0, "cannot write {}: {}", made, SystemReason(error));
  if (::link(made.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    Fail("cannot make {}: {}; give --token-file or --insecure", path, SystemReason(errno));
  }
}

}  // namespace lopt
