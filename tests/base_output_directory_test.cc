#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/output_directory.h"
#include "tests/flushed_paths.h"
#include "tests/learner_child.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

TEST_CASE("An output directory is made with those above it, and what is there stays") {
  const TempDirectory scratch;
  const std::string path = scratch / "a/b";
  MakeOutputDirectory(path);
  WriteTextFile(path + "/notes.txt", "mine");
  MakeOutputDirectory(path);
  CHECK(ReadTextFile(path + "/notes.txt") == "mine");
  CHECK_THROWS_WITH_AS(
      MakeOutputDirectory(path + "/notes.txt/c"),
      ("cannot create the directory " + path + "/notes.txt/c: Not a directory").c_str(), Error);
}

TEST_CASE("Names of new directories and of files are flushed to disk in the directories above") {
  const TempDirectory scratch;
  flushed_paths.clear();
  MakeOutputDirectory(scratch / "a/b");
  // Each before there is anything in it; scratch is empty, so its own name comes first.
  const std::string above = fs::path(scratch.path()).parent_path();
  CHECK(flushed_paths == std::vector<std::string>{above, scratch.path(), scratch / "a"});
  // As after a process that was killed in between.
  flushed_paths.clear();
  MakeOutputDirectory(scratch / "a/b");
  CHECK(flushed_paths == std::vector<std::string>{scratch / "a"});
  flushed_paths.clear();
  MakeOutputDirectory(scratch / "a");
  CHECK(flushed_paths.empty());
  WriteTextFile(scratch / "a/file", "text");
  REQUIRE(flushed_paths.size() == 2);
  CHECK(flushed_paths[0].starts_with(scratch / "a/file.tmp."));
  CHECK(flushed_paths[1] == scratch / "a");
  WriteTextFile(scratch / "a/file", "text", Flush::kNo);
  CHECK(flushed_paths.size() == 2);
}

TEST_CASE("A file in the place of a directory is an error that says so") {
  const TempDirectory scratch;
  WriteTextFile(scratch / "notes.txt", "");
  const std::string path = scratch / "notes.txt";
  CHECK_THROWS_WITH_AS(MakeOutputDirectory(path),
                       (path + " is a file; wanted an output directory").c_str(), Error);
}

TEST_CASE("A directory that may not be written to is an error with the reason") {
  const TempDirectory scratch;
  fs::permissions(scratch.path(), fs::perms(0555));
  const ChildEnd end = RunInChild([&] {
    Require(::geteuid() != 0 || ::setuid(65534) == 0, "cannot become an ordinary user");
    try {
      MakeOutputDirectory(scratch.path());
    } catch (const Error& error) {
      const std::string wanted =
          "cannot write to the output directory " + scratch.path() + ": Permission denied";
      ::_exit(error.what() == wanted ? 42 : 43);
    }
  });
  CHECK(end.exit_code == 42);
  fs::permissions(scratch.path(), fs::perms(0755));
}

TEST_CASE("What matches is removed, directories with what they hold, and nothing else") {
  const TempDirectory scratch;
  MakeOutputDirectory(scratch / "old/deep");
  WriteTextFile(scratch / "old/deep/file", "");
  WriteTextFile(scratch / "kept", "");
  RemoveMatching(scratch.path(), [](std::string_view name) { return name == "old"; });
  CHECK_FALSE(fs::exists(scratch / "old"));
  CHECK(fs::exists(scratch / "kept"));
}

TEST_CASE("What a killed write leaves is known by its name") {
  CHECK(IsUnfinished("config.json.tmp.12.0", "config.json"));
  CHECK_FALSE(IsUnfinished("config.json", "config.json"));
  CHECK_FALSE(IsUnfinished("my.config.json.tmp.12.0", "config.json"));
  CHECK_FALSE(IsUnfinished("config.json.bak", "config.json"));
}

}  // namespace
}  // namespace lopt
