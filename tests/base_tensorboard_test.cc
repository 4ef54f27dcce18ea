#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/event_records.h"
#include "base/file.h"
#include "base/metrics.h"
#include "base/tensorboard.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

// What the `tensorboard` Python package 2.21 writes for the version record at 1.5 s and for step 7
// at 2 s with a = 0 and b/c = 1.5.
const std::string kVersionRecord(
    "\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7f\x4b\x22\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x1a\x0d"
    "brain.Event:2"
    "\x2a\x28\x64\x6c",
    40);
const std::string kStepRecord(
    "\x23\x00\x00\x00\x00\x00\x00\x00\xb0\x9f\x77\x43\x09\x00\x00\x00\x00\x00\x00\x00\x40\x10\x07"
    "\x2a\x16\x0a\x08\x0a\x01\x61\x15\x00\x00\x00\x00\x0a\x0a\x0a\x03\x62\x2f\x63\x15\x00\x00\xc0"
    "\x3f\xde\xba\x9b\xaf",
    51);

std::vector<std::string> FilesOf(const TempDirectory& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

void WriteSteps(const TempDirectory& directory, double wall_time_seconds, int64_t keep_below,
                int64_t first, int64_t last) {
  TensorBoardWriter writer(directory.path(), wall_time_seconds, keep_below);
  for (int64_t step = first; step < last; ++step) {
    writer.Write(step, wall_time_seconds, {{"loss", 0}});
  }
  writer.Flush();
}

size_t RecordsOf(const TempDirectory& directory, const std::string& name) {
  return EventMessages(ReadTextFile(directory / name), name).size();
}

std::string ResumeError(const TempDirectory& directory) {
  try {
    TensorBoardWriter(directory.path(), 0, 1);
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

}  // namespace

TEST_CASE("an event file has the bytes that TensorBoard's own writer gives") {
  const TempDirectory directory;
  {
    TensorBoardWriter writer(directory.path(), 1.5, -1);
    writer.Write(7, 2.0, {{"a", 0}, {"b/c", 1.5}});
  }
  REQUIRE(FilesOf(directory) == std::vector<std::string>{"events.out.tfevents.0000000001.lopt"});
  CHECK(ReadTextFile(directory / "events.out.tfevents.0000000001.lopt") ==
        kVersionRecord + kStepRecord);
}

TEST_CASE("a record is a message between its length and checksums") {
  const std::string message = kStepRecord.substr(12, 35);
  CHECK(EventRecord(message) == kStepRecord);
  const std::string file = kVersionRecord + kStepRecord + EventRecord("");
  const std::vector<std::string_view> messages = EventMessages(file, "f");
  REQUIRE(messages.size() == 3);
  CHECK(messages[1] == message);
  CHECK(messages[2].empty());
}

TEST_CASE("a last record that is not complete is left out") {
  const std::string file = kVersionRecord + kStepRecord;
  for (size_t size = 0; size <= file.size(); ++size) {
    const size_t complete = size == file.size() ? 2 : size >= kVersionRecord.size() ? 1 : 0;
    CHECK(EventMessages(std::string_view(file).substr(0, size), "f").size() == complete);
  }
}

TEST_CASE("a wrong checksum is an Error with its place") {
  const auto error_of = [](size_t byte) -> std::string {
    std::string file = kVersionRecord + kStepRecord;
    file[byte] ^= 1;
    try {
      EventMessages(file, "f");
    } catch (const Error& error) {
      return error.what();
    }
    return "no Error";
  };
  CHECK(error_of(0) == "f: wrong checksum of the length at byte 0");
  CHECK(error_of(8) == "f: wrong checksum of the length at byte 0");
  CHECK(error_of(40) == "f: wrong checksum of the length at byte 40");
  CHECK(error_of(60) == "f: wrong checksum of the record at byte 40");
  CHECK(error_of(90) == "f: wrong checksum of the record at byte 40");
}

TEST_CASE("the files of a resumed run sort in the order they were made, whatever the clock") {
  const TempDirectory directory;
  WriteSteps(directory, 1700000000.5, -1, 0, 3);
  WriteSteps(directory, 1700000000.7, 2, 2, 4);
  WriteSteps(directory, 1600000000, 3, 3, 5);
  WriteSteps(directory, 1800000000, 4, 4, 6);
  const std::vector<std::string> names = FilesOf(directory);
  CHECK(names == std::vector<std::string>{
                     "events.out.tfevents.1700000000.lopt", "events.out.tfevents.1700000001.lopt",
                     "events.out.tfevents.1700000002.lopt", "events.out.tfevents.1800000000.lopt"});
  CHECK(RecordsOf(directory, names[0]) == 1 + 2);
  CHECK(RecordsOf(directory, names[1]) == 1 + 1);
  CHECK(RecordsOf(directory, names[2]) == 1 + 1);
  CHECK(RecordsOf(directory, names[3]) == 1 + 2);
}

TEST_CASE("resuming cuts half a record and later steps from older files and nothing else") {
  const TempDirectory directory;
  const std::string name = "events.out.tfevents.0000000001.lopt";
  WriteTextFile(directory / name, kVersionRecord + kStepRecord + kStepRecord.substr(0, 30));
  WriteTextFile(directory / "notes.txt", "mine");
  TensorBoardWriter(directory.path(), 3, 8);
  CHECK(ReadTextFile(directory / name) == kVersionRecord + kStepRecord);
  TensorBoardWriter(directory.path(), 3, 7);
  CHECK(ReadTextFile(directory / name) == kVersionRecord);
  TensorBoardWriter(directory.path(), 3, 0);
  CHECK(ReadTextFile(directory / name) == kVersionRecord);
  CHECK(ReadTextFile(directory / "notes.txt") == "mine");
}

TEST_CASE("an event file that is damaged is an Error on resume and stays as it is") {
  const TempDirectory directory;
  const std::string path = directory / "events.out.tfevents.0000000001.lopt";
  const std::string damaged = kVersionRecord + std::string(20, '\0');
  WriteTextFile(path, damaged);
  CHECK(ResumeError(directory) == path + ": wrong checksum of the length at byte 40");
  CHECK(ReadTextFile(path) == damaged);
  WriteTextFile(path, EventRecord("\xff"));
  CHECK(ResumeError(directory) == path + ": a record is not an Event message");
}

TEST_CASE("an event file in a directory that is not there is an Error") {
  const TempDirectory directory;
  const std::string none = directory / "none";
  CHECK_THROWS_WITH_AS(TensorBoardWriter(none, 0, -1),
                       (none + ": cannot be listed: No such file or directory").c_str(), Error);
}

}  // namespace lopt
