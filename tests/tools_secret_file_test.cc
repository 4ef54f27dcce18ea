#include <doctest/doctest.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lopt/base/environment.h"
#include "lopt/base/file.h"
#include "lopt/learner/elastic/network.h"
#include "lopt/learner/elastic/secret_file.h"
#include "lopt/tools/simulate/passing_files.h"
#include "tests/error_of.h"
#include "tests/like_system_environment.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

TEST_CASE("A secret that others may read or write is an error") {
  const TempDirectory directory;
  const std::string path = directory / "secret";
  WriteTextFile(path, "sesame\n");
  for (const mode_t mode : {0600U, 0400U, 0700U}) {
    ::chmod(path.c_str(), mode);
    CHECK_EQ(ReadSecretFile(path), "sesame\n");
  }
  for (const auto& [mode, text] :
       std::vector<std::pair<mode_t, std::string>>{{0644, "644"}, {0620, "620"}, {0602, "602"}}) {
    ::chmod(path.c_str(), mode);
    CHECK_EQ(ErrorOf([&] { ReadSecretFile(path); }),
             path + " is to be a secret, but others may read or write it (mode " + text +
                 "); say: chmod 600 " + path);
  }
  CHECK_EQ(ErrorOf([&] { ReadSecretFile(directory / "none"); }),
           "cannot read " + (directory / "none") + ": No such file or directory");
}

TEST_CASE("A secret is the user's alone, or root's, who may let a group read it") {
  struct Case {
    uint32_t owner, mode, user;
    std::string why;
  };
  const std::string none = "no error";
  const std::string another = "a is to be a secret, but it belongs to another user (number 7)";
  const auto open = [](int mode, int wanted = 600) {
    return fmt::format(
        "a is to be a secret, but others may read or write it (mode {}); say: chmod {} a", mode,
        wanted);
  };
  for (const auto& [owner, mode, user, why] : std::vector<Case>{{7, 0600, 7, none},
                                                                {7, 0400, 7, none},
                                                                {7, 0640, 7, open(640)},
                                                                {7, 0604, 7, open(604)},
                                                                {7, 0600, 8, another},
                                                                {7, 0600, 0, another},
                                                                {0, 0600, 7, none},
                                                                {0, 0640, 7, none},
                                                                {0, 0660, 7, open(660, 640)},
                                                                {0, 0644, 7, open(644, 640)},
                                                                {0, 0640, 0, none},
                                                                {0, 0660, 0, open(660)},
                                                                {0, 0604, 0, open(604)}}) {
    CAPTURE(owner);
    CAPTURE(mode);
    CAPTURE(user);
    CHECK_EQ(ErrorOf([&] { RequireSecret("a", owner, mode, user); }), why);
  }
}

TEST_CASE("What is no file, or a long one, is no secret") {
  const TempDirectory directory;
  const std::string pipe = directory / "pipe";
  REQUIRE_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  CHECK_EQ(ErrorOf([&] { ReadSecretFile(pipe); }),
           "cannot read " + pipe + ": it is a named pipe, wanted a file");
  const std::string path = directory / "long";
  WriteTextFile(path, std::string(2'000'000, 'x'));
  ::chmod(path.c_str(), 0600);
  CHECK_EQ(ErrorOf([&] { ReadSecretFile(path); }),
           path + " is to be a secret, but it has 2000000 bytes");
}

TEST_CASE("A secret of another user is an error, whatever its mode") {
  if (::geteuid() != 0) {
    SkipTest("only root may give a file away");
    return;
  }
  const TempDirectory directory;
  const std::string path = directory / "secret";
  WriteTextFile(path, "sesame\n");
  ::chmod(path.c_str(), 0600);
  REQUIRE_EQ(::chown(path.c_str(), 65534, 65534), 0);
  CHECK_EQ(ErrorOf([&] { ReadSecretFile(path); }),
           path + " is to be a secret, but it belongs to another user (number 65534)");
}

TEST_CASE("Processes that make a token at once find the same one, and nothing else is left") {
  const TempDirectory directory;
  const std::string path = directory / "a/b/token";
  std::vector<std::string> found(8);
  std::vector<std::thread> threads;
  for (std::string& text : found) {
    threads.emplace_back([&] {
      MakeTokenFile(path);
      text = ReadSecretFile(path);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::set<std::string> different(found.begin(), found.end());
  CHECK_EQ(different.size(), 1);
  CHECK_EQ(different.begin()->size(), 65);
  CHECK_EQ(ListDirectory(directory / "a/b"), std::vector<std::string>{"token"});
  MakeTokenFile(path);
  CHECK_EQ(ReadSecretFile(path), *different.begin());
}

TEST_CASE("A file without a token is an error that says what to do") {
  const TempDirectory directory;
  const std::string path = directory / "token";
  WriteTextFile(path, "\n");
  ::chmod(path.c_str(), 0600);
  CHECK_EQ(ErrorOf([&] { ReadSecrets({.token = path}); }),
           "the token in " + path +
               " is empty; remove the file if lopt is to make a new one, or write a token into it");
}

TEST_CASE("A token that cannot be made is an error that names the choices") {
  const TempDirectory directory;
  WriteTextFile(directory / "file", "");
  const std::string error = ErrorOf([&] { MakeTokenFile(directory / "file/token"); });
  CHECK_MESSAGE(error.find(directory / "file") != std::string::npos, error);
}

// Files of which at most a byte is read or written at a time.
class SlowFiles final : public PassingFiles {
 public:
  SlowFiles() : PassingFiles(&SystemFiles()) {}
  int64_t Read(int descriptor, std::span<std::byte> bytes, int64_t offset) override {
    ++calls;
    return PassingFiles::Read(descriptor, bytes.first(1), offset);
  }
  int64_t Write(int descriptor, std::span<const std::byte> bytes) override {
    ++calls;
    return PassingFiles::Write(descriptor, bytes.first(1));
  }

  int calls = 0;
};

TEST_CASE("A token is made and read whole where the system takes a byte at a time") {
  const TempDirectory directory;
  EnvironmentWith<SlowFiles> environment;
  const InEnvironment inside(&environment);
  MakeTokenFile(directory / "token");
  CHECK_EQ(environment.files().calls, 65);
  CHECK_EQ(ReadSecretFile(directory / "token").size(), 65);
  CHECK_EQ(environment.files().calls, 65 + 66);  // the last finds the end
}

TEST_CASE("A token that cannot be made is an error that says what else there is") {
  const TempDirectory directory;
  std::ofstream(directory / "file");
  CHECK_EQ(ErrorOf([&] { MakeTokenFile(directory / "file/lopt/token"); }),
           fmt::format("no token for learners and workers: cannot create the directory {}: Not a "
                       "directory; give --token-file or --insecure",
                       directory / "file/lopt"));
}

TEST_CASE("The user's token is in the directory of configurations") {
  ::setenv("HOME", "/home/somebody", 1);
  ::unsetenv("XDG_CONFIG_HOME");
  CHECK_EQ(UsersTokenFile(), "/home/somebody/.config/lopt/token");
  ::setenv("XDG_CONFIG_HOME", "/elsewhere", 1);
  CHECK_EQ(UsersTokenFile(), "/elsewhere/lopt/token");
  ::setenv("XDG_CONFIG_HOME", "relative", 1);
  CHECK_EQ(UsersTokenFile(), "/home/somebody/.config/lopt/token");
}

}  // namespace
}  // namespace lopt
