#include "lopt/learner/elastic/secret_file.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

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

}  // namespace

void RequireSecret(const std::string& path, uint32_t owner, uint32_t mode, uint32_t user) {
  const bool of_root = owner == 0;
  Require(owner == user || of_root,
          "{} is to be a secret, but it belongs to another user (number {})", path, owner);
  Require((mode & (of_root ? 027U : 077U)) == 0,
          "{} is to be a secret, but others may read or write it (mode {:o}); say: chmod {} {}",
          path, mode, owner == user ? 600 : 640, path);
}

// The file that is checked is the one that is read, whoever moves names meanwhile.
std::string ReadSecretFile(const std::string& path) {
  const OpenFile file(path, OpenFor::kRead, "cannot read");
  struct stat status = {};
  if (::fstat(file.number(), &status) != 0) {
    Fail("cannot read {}: {}", path, SystemReason(errno));
  }
  Require(S_ISREG(status.st_mode), "{} is to be a secret, but it is no file", path);
  RequireSecret(path, status.st_uid, status.st_mode & 07777U, ::geteuid());
  Require(status.st_size <= kMostSecretBytes, "{} is to be a secret, but it has {} bytes", path,
          status.st_size);
  return ReadTextFile(file, path);
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
  std::string token;
  for (int i = 0; i < 4; ++i) token += fmt::format("{:016x}", environment.UniqueNumber());
  token += '\n';
  try {
    MakeDirectories(path.substr(0, path.rfind('/')));
    MakePrivateFile(path, token);
  } catch (const Error& error) {
    Fail("no token for learners and workers: {}; give --token-file or --insecure", error.what());
  }
}

}  // namespace lopt
