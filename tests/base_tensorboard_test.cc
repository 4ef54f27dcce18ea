#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/event_records.h"
#include "lopt/base/file.h"
#include "lopt/base/metrics.h"
#include "lopt/base/png.h"
#include "lopt/base/tensorboard.h"
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

}  // namespace

TEST_CASE("an event file has the bytes that TensorBoard's own writer gives") {
  const TempDirectory directory;
  {
    TensorBoardWriter writer(directory.path(), 1.5);
    writer.Write(7, 2.0, {{"a", 0}, {"b/c", 1.5}});
  }
  REQUIRE(EventFiles(directory.path()) ==
          std::vector<std::string>{"events.out.tfevents.0000000001.lopt"});
  CHECK(ReadTextFile(directory / "events.out.tfevents.0000000001.lopt") ==
        kVersionRecord + kStepRecord);
}

TEST_CASE("an image record has the bytes of TensorBoard's message around a PNG file") {
  const TempDirectory directory;
  const Bitmap bitmap{
      .height = 2, .width = 3, .channels = 1, .pixels = {0, 50, 100, 150, 200, 250}};
  {
    TensorBoardWriter writer(directory.path(), 1.5);
    writer.WriteImage(7, 2.0, "a/b", bitmap);
  }
  // Event: wall_time 2, step 7, summary { value { tag "a/b", image { height 2, width 3, colorspace
  // 1, encoded_image_string } } }; lengths below 128 are one byte.
  const std::string png = EncodePng(bitmap);
  REQUIRE(png.size() < 100);
  const auto length = [](size_t size) { return std::string(1, static_cast<char>(size)); };
  const std::string image = std::string("\x08\x02\x10\x03\x18\x01\x22") + length(png.size()) + png;
  const std::string value =
      "\x0a\x03"
      "a/b\x22" +
      length(image.size()) + image;
  const std::string summary = "\x0a" + length(value.size()) + value;
  const std::string event = std::string("\x09\x00\x00\x00\x00\x00\x00\x00\x40\x10\x07\x2a", 12) +
                            length(summary.size()) + summary;
  CHECK(ReadTextFile(directory / "events.out.tfevents.0000000001.lopt") ==
        kVersionRecord + EventRecord(event));
}

TEST_CASE("a graph record has the bytes of TensorBoard's message") {
  const TempDirectory directory;
  {
    TensorBoardWriter writer(directory.path(), 1.5);
    writer.WriteGraph(2.0, {{.name = "l/w", .op = "P", .shape = Shape{2, 3}},
                            {.name = "y", .op = "mm", .inputs = {"l/w"}}});
  }
  // Event: wall_time 2, graph_def { node { name "l/w", op "P", attr { "_output_shapes": list {
  // shape { dim { size 2 } dim { size 3 } } } } } node { name "y", op "mm", input "l/w" } }
  const std::string shapes = "\x0a\x0a\x3a\x08\x12\x02\x08\x02\x12\x02\x08\x03";
  const std::string attribute =
      "\x0a\x0e_output_shapes\x12" + std::string(1, static_cast<char>(shapes.size())) + shapes;
  const std::string first =
      "\x0a\x03l/w\x12\x01P\x2a" + std::string(1, static_cast<char>(attribute.size())) + attribute;
  const std::string second =
      "\x0a\x01y\x12\x02mm\x1a\x03"
      "l/w";
  const std::string graph = "\x0a" + std::string(1, static_cast<char>(first.size())) + first +
                            "\x0a" + std::string(1, static_cast<char>(second.size())) + second;
  const std::string event = std::string("\x09\x00\x00\x00\x00\x00\x00\x00\x40\x22", 10) +
                            std::string(1, static_cast<char>(graph.size())) + graph;
  CHECK(ReadTextFile(directory / "events.out.tfevents.0000000001.lopt") ==
        kVersionRecord + EventRecord(event));
}

TEST_CASE("graphs whose names do not fit together are errors") {
  const TempDirectory directory;
  TensorBoardWriter writer(directory.path(), 1.5);
  CHECK_THROWS_WITH_AS(writer.WriteGraph(2, {{.name = "a", .op = "P"}, {.name = "a", .op = "P"}}),
                       "TensorBoard: two nodes of a graph have the name 'a'", Error);
  CHECK_THROWS_WITH_AS(writer.WriteGraph(2, {{.name = "a", .op = "P", .inputs = {"b"}}}),
                       "TensorBoard: 'b', an input of 'a', is no node of the graph", Error);
}

TEST_CASE("a record is a message between its length and checksums") {
  CHECK(EventRecord(kStepRecord.substr(12, 35)) == kStepRecord);
}

TEST_CASE("the files of a resumed run sort in the order they were made, whatever the clock") {
  const TempDirectory directory;
  for (const double wall_time_seconds : {1700000000.5, 1700000000.7, 1600000000.0, 1800000000.0}) {
    TensorBoardWriter(directory.path(), wall_time_seconds);
  }
  CHECK(EventFiles(directory.path()) ==
        std::vector<std::string>{
            "events.out.tfevents.1700000000.lopt", "events.out.tfevents.1700000001.lopt",
            "events.out.tfevents.1700000002.lopt", "events.out.tfevents.1800000000.lopt"});
}

TEST_CASE("the event files of a directory are lopt's own, and sort behind those of others") {
  const TempDirectory directory;
  WriteTextFile(directory / "notes.txt", "mine");
  WriteTextFile(directory / "events.out.tfevents.0000000004.host", "");
  TensorBoardWriter(directory.path(), 3);
  CHECK(EventFiles(directory.path()) ==
        std::vector<std::string>{"events.out.tfevents.0000000005.lopt"});
}

TEST_CASE("an event file in a directory that is not there is an Error") {
  const TempDirectory directory;
  const std::string none = directory / "none";
  CHECK_THROWS_WITH_AS(TensorBoardWriter(none, 0),
                       (none + ": cannot be listed: No such file or directory").c_str(), Error);
}

}  // namespace lopt
