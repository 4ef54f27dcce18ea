#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/learner/run/run_logs.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

constexpr const char* kFirst = "events.out.tfevents.0000000001.lopt";
constexpr const char* kSecond = "events.out.tfevents.0000000002.lopt";

TEST_CASE("Logs are cut to where they were, and event files that were begun since are removed") {
  const TempDirectory directory;
  WriteTextFile(directory / "metrics.jsonl", "one\ntwo\n");
  WriteTextFile(directory / kFirst, "12345");
  WriteTextFile(directory / "notes.txt", "mine");
  const LogState state = {.seconds = 1, .bytes = LogBytes(directory.path())};
  CHECK(state.bytes == std::map<std::string, int64_t>{{"metrics.jsonl", 8}, {kFirst, 5}});
  SyncLogs(directory.path(), state);
  WriteTextFile(directory / "metrics.jsonl", "one\ntwo\nthr" + std::string(3, '\0'));
  WriteTextFile(directory / kFirst, "123456");
  WriteTextFile(directory / kSecond, "1");
  WriteTextFile(directory / "throughput.jsonl", "three\n");
  CutLogs(directory.path(), state);
  CHECK(LogBytes(directory.path()) == state.bytes);
  CHECK(ReadTextFile(directory / "metrics.jsonl") == "one\ntwo\n");
  CHECK(ReadTextFile(directory / "notes.txt") == "mine");
  CutLogs(directory.path(), {});
  CHECK(LogBytes(directory.path()).empty());
}

TEST_CASE("A log that has lost records keeps the whole lines that are left") {
  const TempDirectory directory;
  const LogState state = {.seconds = 0,
                          .bytes = {{"metrics.jsonl", 100}, {"throughput.jsonl", 9}, {kFirst, 7}}};
  WriteTextFile(directory / "metrics.jsonl", "one\ntwo\nthr");
  WriteTextFile(directory / kFirst, "12345");
  CutLogs(directory.path(), state);
  CHECK(ReadTextFile(directory / "metrics.jsonl") == "one\ntwo\n");
  CHECK(ReadTextFile(directory / kFirst) == "12345");
}

TEST_CASE("The logs of a directory that is not there are an Error") {
  CHECK_THROWS_WITH_AS(LogBytes("/not/there"),
                       "/not/there: cannot be listed: No such file or directory", Error);
}

}  // namespace
}  // namespace lopt
