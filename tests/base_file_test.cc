#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/tools/simulate/passing_files.h"
#include "tests/file_size_limit.h"
#include "tests/flushed_paths.h"
#include "tests/like_system_environment.h"

namespace lopt {
namespace {

// A fresh directory that is removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    // Without links, as in flushed_paths.
    const auto place = std::filesystem::canonical(std::filesystem::temp_directory_path());
    std::string name = (place / "lopt_file_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::string path_;
};

std::string MessageOf(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE(
    "A named pipe or device in the place of a file is an error at once that says what it is") {
  const TemporaryDirectory directory;
  const std::string pipe = directory / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::string link = directory / "link";
  std::filesystem::create_symlink(pipe, link);
  for (const std::string& path : {pipe, link}) {
    const std::string wanted = " " + path + ": it is a named pipe, wanted a file";
    CHECK(MessageOf([&] { ReadFile(path); }) == "cannot read" + wanted);
    CHECK(MessageOf([&] { ReadTextFile(path); }) == "cannot read" + wanted);
    CHECK(MessageOf([&] { SyncFile(path); }) == "cannot open" + wanted);
    CHECK(MessageOf([&] { RequireFile(path, "cannot load"); }) == "cannot load" + wanted);
    for (const OpenFor how : {OpenFor::kRead, OpenFor::kReplace, OpenFor::kAppend}) {
      CHECK(MessageOf([&] { OpenFile(path, how, "cannot use"); }) == "cannot use" + wanted);
    }
    CHECK_FALSE(FileSize(path));
    CHECK_FALSE(IsDirectory(path));
    CHECK(Exists(path));
  }
  CHECK(MessageOf([] { ReadFile("/dev/zero"); }) ==
        "cannot read /dev/zero: it is a device, wanted a file");
  CHECK(MessageOf([&] { RequireFile(directory.path(), "cannot load"); }) == "");
  CHECK(MessageOf([&] { RequireFile(directory / "nothing", "cannot load"); }) == "");
}

TEST_CASE("A pipe that the process has open is read to its end") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  REQUIRE(::write(ends[1], "one two", 7) == 7);
  ::close(ends[1]);
  CHECK(ReadTextFile("/dev/fd/" + std::to_string(ends[0])) == "one two");
  ::close(ends[0]);
  REQUIRE(::pipe(ends) == 0);
  REQUIRE(::write(ends[1], "three", 5) == 5);
  ::close(ends[1]);
  CHECK(ReadTextFile("/proc/self/fd/" + std::to_string(ends[0])) == "three");
  ::close(ends[0]);
}

TEST_CASE("A file that the process has open is not replaced by way of its descriptor") {
  const TemporaryDirectory directory;
  const std::string path = directory / "log";
  WriteTextFile(path, "before\n");
  const int log = ::open(path.c_str(), O_WRONLY | O_APPEND);
  for (const char* folder : {"/dev/fd/", "/proc/self/fd/"}) {
    const std::string name = folder + std::to_string(log);
    CHECK(MessageOf([&] { WriteTextFile(name, "after\n"); }) ==
          "cannot write " + name +
              ": it stands for a file that this process has open, wanted the name of a file");
  }
  ::close(log);
  CHECK(ReadTextFile(path) == "before\n");
}

TEST_CASE("What was written is read back, whatever the bytes and the size") {
  const TemporaryDirectory directory;
  const std::string path = directory / "bytes";
  for (const size_t size : {0, 1, 4095, 4096, 300000}) {
    std::vector<std::byte> bytes(size);
    for (size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<std::byte>(i * 7);
    }
    WriteFile(path, bytes);
    CHECK(ReadFile(path) == bytes);
    CHECK(std::filesystem::file_size(path) == size);
  }
  const std::string text("line\r\n\0end", 10);
  WriteTextFile(path, text);
  CHECK(ReadTextFile(path) == text);
  CHECK(directory.Names() == std::vector<std::string>{"bytes"});
}

TEST_CASE("A file that does not tell its size is read to its end") {
  CHECK(!ReadTextFile("/proc/self/status").empty());
}

TEST_CASE("A new file has the permissions that the umask leaves") {
  const TemporaryDirectory directory;
  const mode_t before = ::umask(027);
  WriteTextFile(directory / "file", "text");
  ::umask(before);
  struct stat status = {};
  REQUIRE(::stat((directory / "file").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
}

TEST_CASE("Reading what is not there or is no file is an error with path and reason") {
  const TemporaryDirectory directory;
  const std::string missing = directory / "missing";
  CHECK(MessageOf([&] { ReadFile(missing); }) ==
        "cannot read " + missing + ": No such file or directory");
  CHECK(MessageOf([&] { ReadTextFile(directory.path()); }) ==
        "cannot read " + directory.path() + ": Is a directory");
}

TEST_CASE("Writing into a missing directory is an error with path and reason") {
  const TemporaryDirectory directory;
  const std::string path = directory / "missing/file";
  CHECK(MessageOf([&] { WriteTextFile(path, "text"); }) ==
        "cannot write " + path + ": No such file or directory");
}

TEST_CASE("Writing below a regular file is an error with path and reason") {
  const TemporaryDirectory directory;
  WriteTextFile(directory / "file", "text");
  const std::string path = directory / "file/below";
  CHECK(MessageOf([&] { WriteTextFile(path, "text"); }) ==
        "cannot write " + path + ": Not a directory");
  CHECK(ReadTextFile(directory / "file") == "text");
}

TEST_CASE("Writing over a directory is an error and leaves nothing else behind") {
  const TemporaryDirectory directory;
  const std::string path = directory / "directory";
  std::filesystem::create_directory(path);
  CHECK(MessageOf([&] { WriteTextFile(path, "text"); }) ==
        "cannot write " + path + ": Is a directory");
  CHECK(directory.Names() == std::vector<std::string>{"directory"});
}

TEST_CASE("A full disk leaves the old file as it was and no temporary one") {
  const TemporaryDirectory directory;
  const std::string path = directory / "file";
  WriteTextFile(path, "old");
  std::string message;
  {
    const FileSizeLimit limit(1000);
    message = MessageOf([&] { WriteTextFile(path, std::string(100000, 'x')); });
  }
  CHECK(message == "cannot write " + path + ": File too large");
  CHECK(ReadTextFile(path) == "old");
  CHECK(directory.Names() == std::vector<std::string>{"file"});
  WriteTextFile(path, std::string(100000, 'x'));
  CHECK(ReadTextFile(path) == std::string(100000, 'x'));
}

TEST_CASE("A link stays, and what it leads to is replaced") {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "store");
  WriteTextFile(directory / "store/v1", "old");
  std::filesystem::create_symlink("store/v1", directory / "current");
  std::filesystem::create_symlink("current", directory / "again");
  for (const char* link : {"current", "again"}) {
    flushed_paths.clear();
    WriteTextFile(directory / link, link);
    CHECK(std::filesystem::is_symlink(directory / link));
    CHECK(ReadTextFile(directory / "store/v1") == link);
    REQUIRE(flushed_paths.size() == 2);
    const std::string place = std::filesystem::canonical(directory / "store");
    CHECK(flushed_paths[0].starts_with(place + "/v1.tmp."));
    CHECK(flushed_paths[1] == place);
  }
  CHECK_FALSE(std::filesystem::is_symlink(directory / "store/v1"));
  CHECK(ListDirectory(directory.path()) == std::vector<std::string>{"again", "current", "store"});
  CHECK(ListDirectory(directory / "store") == std::vector<std::string>{"v1"});
}

TEST_CASE("A link to no file is an error that names it, and stays") {
  const TemporaryDirectory directory;
  const std::string link = directory / "link";
  const std::string pipe = directory / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const auto& [target, reason] : std::vector<std::pair<std::string, std::string>>{
           {"nowhere",
            "it is a link, and what it leads to is not to be found: No such file or directory"},
           {"/dev/null", "it is a device, wanted a file"},
           {"pipe", "it is a named pipe, wanted a file"},
           {".", "Is a directory"}}) {
    std::filesystem::create_symlink(target, link);
    CHECK(MessageOf([&] { WriteTextFile(link, "text"); }) ==
          "cannot write " + link + ": " + reason);
    CHECK(std::filesystem::read_symlink(link) == target);
    std::filesystem::remove(link);
  }
  CHECK(ListDirectory(directory.path()) == std::vector<std::string>{"pipe"});
}

TEST_CASE("An open file is read to its end, whatever has its name by now") {
  const TemporaryDirectory directory;
  const std::string path = directory / "file";
  const std::string text(10000, 'x');
  WriteTextFile(path, text);
  const OpenFile file(path, OpenFor::kRead, "cannot read");
  WriteTextFile(path, "another");
  CHECK(ReadTextFile(file, path) == text);
  CHECK(ReadTextFile(file, path) == text);
}

TEST_CASE("A private file is its owner's alone whatever the umask, and never replaces another") {
  const TemporaryDirectory directory;
  const std::string path = directory / "file";
  const mode_t before = ::umask(0);
  flushed_paths.clear();
  CHECK(MakePrivateFile(path, "text"));
  REQUIRE(flushed_paths.size() == 2);  // the bytes before there is a name, then the name
  CHECK(flushed_paths[0].starts_with(path + ".tmp."));
  CHECK(flushed_paths[1] == directory.path());
  CHECK_FALSE(MakePrivateFile(path, "more"));
  ::umask(before);
  CHECK(ReadTextFile(path) == "text");
  struct stat status = {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  CHECK(directory.Names() == std::vector<std::string>{"file"});
}

TEST_CASE("A private file for which there is no room is an error, and nothing is left") {
  const TemporaryDirectory directory;
  const std::string path = directory / "file";
  std::string message;
  {
    const FileSizeLimit limit(100);
    message = MessageOf([&] { MakePrivateFile(path, std::string(1000, 'x')); });
  }
  CHECK(message == "cannot make " + path + ": File too large");
  CHECK(directory.Names().empty());
  message = MessageOf([&] { MakePrivateFile(directory / "none/file", "text"); });
  CHECK(message == "cannot make " + (directory / "none/file") + ": No such file or directory");
}

TEST_CASE("A directory that cannot be made says what is in its place") {
  const TemporaryDirectory directory;
  MakeDirectories(directory / "a/b");
  MakeDirectories(directory / "a/b");
  WriteTextFile(directory / "file", "text");
  CHECK(MessageOf([&] { MakeDirectories(directory / "file"); }) ==
        "cannot create the directory " + directory.path() + "/file: a file has this name");
  std::filesystem::create_symlink("nowhere", directory / "link");
  CHECK(MessageOf([&] { MakeDirectories(directory / "link"); }) ==
        "cannot create the directory " + directory.path() +
            "/link: it is a link to a place that is not there");
}

TEST_CASE("A directory can be flushed, and what is none cannot") {
  const TemporaryDirectory directory;
  SyncDirectory(directory.path());
  WriteTextFile(directory / "file", "text");
  CHECK(MessageOf([&] { SyncDirectory(directory / "file"); }) ==
        "cannot open the directory " + directory.path() + "/file: Not a directory");
  CHECK(MessageOf([&] { SyncDirectory(directory / "missing"); }) ==
        "cannot open the directory " + directory.path() + "/missing: No such file or directory");
}

// Files whose flushes and, where that is asked for, opening of directories fail.
class UnflushedFiles final : public PassingFiles {
 public:
  UnflushedFiles() : PassingFiles(&SystemFiles()) {}
  int Open(const std::string& path, OpenFor what) override {
    return what == OpenFor::kDirectory && open_error != 0 ? -open_error
                                                          : PassingFiles::Open(path, what);
  }
  int Flush(int) override { return -flush_error; }

  int open_error = 0;
  int flush_error = 0;
};

TEST_CASE("A directory that nobody can flush is no error, and a flush that fails is one") {
  SyncDirectory("/proc");
  const TemporaryDirectory directory;
  EnvironmentWith<UnflushedFiles> environment;
  const InEnvironment inside(&environment);
  const auto error = [&](int open_error, int flush_error) {
    environment.files().open_error = open_error;
    environment.files().flush_error = flush_error;
    return MessageOf([&] { SyncDirectory(directory.path()); });
  };
  CHECK(error(0, EINVAL) == "");
  CHECK(error(0, EOPNOTSUPP) == "");
  CHECK(error(EACCES, 0) == "");
  CHECK(error(0, EIO) == "cannot flush the directory " + directory.path() + ": Input/output error");
  CHECK(error(EMFILE, 0) ==
        "cannot open the directory " + directory.path() + ": Too many open files");
  // A file must reach the disk all the same.
  environment.files() = UnflushedFiles();
  environment.files().flush_error = EINVAL;
  CHECK(MessageOf([&] { WriteTextFile(directory / "file", "text"); }) ==
        "cannot write " + (directory / "file") + ": Invalid argument");
}

}  // namespace
}  // namespace lopt
