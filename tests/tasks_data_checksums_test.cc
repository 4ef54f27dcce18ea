#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/file.h"
#include "lopt/tasks/data/data_checksums.h"
#include "lopt/tasks/data/text_data.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/task_resources.h"
#include "tests/csv_digits.h"
#include "tests/error_of.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

RawImages Images() {
  RawImages images{.count = 10, .height = 2, .width = 3};
  images.pixels.assign(60, 7);
  images.labels.assign(10, 1);
  SplitOneSet(images.count, images.splits);
  return images;
}

TEST_CASE("The checksum of images changes with all that they are") {
  const uint32_t checksum = ChecksumOf(Images());
  CHECK(ChecksumOf(Images()) == checksum);
  const std::vector<std::function<void(RawImages*)>> changes = {
      [](RawImages* images) { images->pixels[59] = 8; },
      [](RawImages* images) { images->labels[9] = 2; },
      [](RawImages* images) { std::swap(images->height, images->width); },
      [](RawImages* images) { images->channels = 3; },
      [](RawImages* images) { --images->splits[0].second; }};
  for (const auto& change : changes) {
    RawImages images = Images();
    change(&images);
    CHECK(ChecksumOf(images) != checksum);
  }
}

// What a task reads from this directory.
std::string ChecksumsIn(const std::string& directory, const std::string& options = "") {
  const TaskResources resources(directory);
  TaskRegistry().Make(
      Config::Parse(R"({"type": "ImageMLP", "image_size": 0, "hidden": [2])" + options + "}",
                    "test"),
      resources);
  return resources.DataChecksums();
}

TEST_CASE("Resources know what their tasks have read from files") {
  const TempDirectory first;
  const TempDirectory same;
  const TempDirectory other;
  WriteCsvDigits(first.path(), 1);
  WriteCsvDigits(same.path(), 1);
  WriteCsvDigits(other.path(), 2);
  const std::string csv = R"(, "data": "csv")";
  const std::string known = ChecksumsIn(first.path(), csv);
  CHECK(known.starts_with("csv "));
  CHECK(known.size() == std::string("csv 01234567").size());
  CHECK(ChecksumsIn(same.path(), csv) == known);
  CHECK(ChecksumsIn(other.path(), csv) != known);
  // What is made of the images does not count, drawn images do not either.
  CHECK(ChecksumsIn(first.path(), csv + R"(, "distortion": "inverted")") == known);
  CHECK(ChecksumsIn(first.path(), R"(, "data": "glyphs")") == "");

  const TaskResources resources("");
  resources.NoteData("b", 255);
  resources.NoteData("a", 1);
  resources.NoteData("b", 255);
  CHECK(resources.DataChecksums() == "a 00000001, b 000000ff");
}

TEST_CASE("Resources know the texts that were read from files, by their paths") {
  const TempDirectory directory;
  const std::string path = directory / "text";
  const auto checksums = [&](const std::string& text) {
    WriteTextFile(path, text);
    const TaskResources resources("");
    GetText({.text = path}, resources);
    return resources.DataChecksums();
  };
  // zlib's CRC-32 of "123456789" is known.
  CHECK(checksums("123456789") == "text '" + path + "' cbf43926");
  CHECK(checksums("123456788") != checksums("123456789"));
  const TaskResources generated("");
  GetText({}, generated);
  CHECK(generated.DataChecksums() == "");
}

TEST_CASE("Other data are an error that names both") {
  const auto error = [](const std::optional<std::string>& then, const std::string& now) {
    return ErrorOf([&] { RequireSameData("from here", then, now); });
  };
  CHECK(error("csv 1", "csv 1") == "no error");
  CHECK(error("", "") == "no error");
  CHECK(error(std::nullopt, "csv 1") == "no error");
  CHECK(error("csv 1", "csv 2") ==
        "cannot resume from here: it was computed on csv 1, and here it would go on with csv 2 "
        "(data sets read from files, with their CRC-32); bring the same files back, name their "
        "directory (data_dir, --data-dir), or begin a new run for other data");
  CHECK(error("", "csv 2").find("computed on data that are drawn, ") != std::string::npos);
  CHECK(ErrorOf([] { RequireSameDataOn("rank 1", "a 1", "rank 0", "a 1"); }) == "no error");
  CHECK(ErrorOf([] { RequireSameDataOn("rank 1", "", "rank 0", "a 1"); }) ==
        "rank 1 computes on data that are drawn, rank 0 on a 1 (data sets read from files, with "
        "their CRC-32); give all processes the same files (data_dir, --data-dir)");
  // However long it is; and it may come from a stranger.
  const std::string many(1000, 'x');
  CHECK(ErrorOf([&] { RequireSameDataOn("rank 1", many, "rank 0", many); }) == "no error");
  CHECK(ErrorOf([&] { RequireSameDataOn("rank 1", many + "1", "rank 0", many + "2"); }) !=
        "no error");
  CHECK(ErrorOf([] {
          RequireSameDataOn("it", "\x1b[2J", "the learner", "a 1");
        }).starts_with("it computes on \\x1b[2J, the learner on a 1 ("));
}

}  // namespace
}  // namespace lopt
