#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lopt/base/error.h"
#include "lopt/base/record.h"
#include "temp_directory.h"

namespace lopt {
namespace {

struct Part {
  std::string name = {};
  uint32_t size = 0;

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("name", name);
    visit("size", size);
  }
};

struct Whole {
  static constexpr const char* kFormat = "whole 1";
  int64_t count = 0;
  bool done = false;
  double seconds = 0;
  std::optional<std::string> note = {};
  Config config = {};
  std::vector<Part> parts = {};
  std::map<std::string, int> shelf = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("count", count);
    visit("done", done);
    visit("seconds", seconds);
    visit("note", note);
    visit("config", config);
    visit("parts", parts);
    visit("shelf", shelf);
  }
};

Whole SomeWhole() {
  return {.count = -3,
          .done = true,
          .seconds = 0.1,
          .config = Config::Parse(R"({"type": "A", "x": [1]})", "test"),
          .parts = {{.name = "p", .size = 4294967295}},
          .shelf = {{"b", 2}, {"a", 1}}};
}

constexpr const char* kText =
    R"({"format":"whole 1","count":-3,"done":true,"seconds":0.1,"config":{"type":"A","x":[1]},)"
    R"("parts":[{"name":"p","size":4294967295}],"shelf":{"a":1,"b":2}})";

// What reading kText with `from` replaced by `to` says.
std::string ErrorWith(const std::string& from, const std::string& to) {
  std::string text = kText;
  text.replace(text.find(from), from.size(), to);
  try {
    ParseRecord<Whole>(text, "f.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

TEST_CASE("A record becomes JSON with its members in order and is read back") {
  CHECK(RecordText(SomeWhole()) == kText);
  Whole whole = ParseRecord<Whole>(kText, "f.json");
  CHECK_FALSE(whole.note.has_value());
  CHECK(RecordText(whole) == kText);
  whole.note.emplace("n");
  CHECK(ParseRecord<Whole>(RecordText(whole, 2), "f.json").note == "n");
}

TEST_CASE("What is not the record is an Error that names file and member") {
  CHECK(ErrorWith(R"("count":-3,)", "") == "f.json: 'count' is missing");
  CHECK(ErrorWith(R"("count":-3)", R"("count":-3,"cuont":1)") ==
        "f.json: 'cuont' is unknown; there may be: format, count, done, seconds, note, config, "
        "parts, shelf");
  CHECK(ErrorWith("-3", "-3.5") ==
        "f.json: 'count' must be an integer in [-9223372036854775808, 9223372036854775807], got "
        "-3.5");
  CHECK(ErrorWith("4294967295", "4294967296") ==
        "f.json: 'parts[0].size' must be an integer in [0, 4294967295], got 4294967296");
  CHECK(ErrorWith("true", "1") == "f.json: 'done' must be true or false, got 1");
  CHECK(ErrorWith("0.1", "\"nan\"") == "f.json: 'seconds' must be a number, got \"nan\"");
  CHECK(ErrorWith("\"p\"", "null") == "f.json: 'parts[0].name' must be text, got null");
  CHECK(ErrorWith(R"({"a":1,"b":2})", "[]") == "f.json: 'shelf' must be an object, got []");
  CHECK(ErrorWith(R"("b":2)", R"("b":"c")").starts_with("f.json: 'shelf.b' must be an integer"));
  CHECK(ErrorWith(R"("name":"p",)", "") == "f.json: 'parts[0].name' is missing");
  CHECK(ErrorWith(R"({"type":"A","x":[1]})", "3") == "f.json: 'config' must be an object, got 3");
  CHECK(ErrorWith("whole 1", "whole 2") ==
        "f.json: its format is 'whole 2', this program reads 'whole 1'");
  CHECK(ErrorWith(R"("format":"whole 1",)", "") == "f.json: 'format' is missing");
  CHECK(ErrorWith(R"("done")", R"("count")") == "f.json: line 1: key 'count' appears twice");
  CHECK(ErrorWith("}]", "}").starts_with("f.json: line 1"));
  CHECK_THROWS_WITH_AS(ParseRecord<Whole>("[]", "f.json"), "f.json: it must be an object, got []",
                       Error);
}

TEST_CASE("A number that is not finite is not written") {
  Whole whole = SomeWhole();
  whole.seconds = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH_AS(RecordText(whole), "inf cannot be written as JSON", Error);
}

TEST_CASE("A record's file is replaced as a whole and read by name") {
  const TempDirectory directory;
  const std::string path = directory / "f.json";
  WriteRecordFile(path, Part{.name = "first", .size = 1});
  WriteRecordFile(path, Part{.name = "second", .size = 2});
  CHECK(ReadTextFile(path) == "{\n  \"name\": \"second\",\n  \"size\": 2\n}\n");
  CHECK(ReadRecordFile<Part>(path).name == "second");
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
  CHECK_THROWS_AS(ReadRecordFile<Part>(directory / "g.json"), Error);
}

}  // namespace
}  // namespace lopt
