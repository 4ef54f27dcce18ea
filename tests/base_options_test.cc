#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "lopt/base/choices.h"
#include "lopt/base/describe_fields.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/base/problems.h"
#include "lopt/base/type_table.h"

namespace lopt {
namespace {

enum class Color { kRed = 3, kGreen = 5 };
constexpr Named<Color> kColors[] = {{Color::kRed, "red"}, {Color::kGreen, "green"}};

struct LampOptions {
  double watts = 5;

  void Visit(FieldVisitor& v) { v.Field("watts", &watts, Above(0), "Power."); }
};

const TypeTable& Lamps() {
  static const TypeTable table = [] {
    TypeTable lamps("lamp");
    lamps.Add({"Bulb", "Old.", [](FieldVisitor& v) { LampOptions().Visit(v); }});
    lamps.Add({"Tube", "Long.", [](FieldVisitor& v) { LampOptions().Visit(v); }});
    return lamps;
  }();
  return table;
}

struct RoomOptions {
  Color color = Color::kRed;
  int64_t doors = 1;
  std::optional<int64_t> windows;
  std::optional<double> height;
  std::vector<double> walls = {1};
  Config lamp;
  std::vector<Config> more;

  void Visit(FieldVisitor& v) {
    v.Choice("color", &color, kColors, "Of the walls.");
    v.Field("doors", &doors, AtLeast(1), "Ways in.");
    v.Field("windows", &windows, Between(0, 8), "Ways out.");
    v.Field("height", &height, Above(0), "Metres.");
    v.Field("walls", &walls, Above(0), "Metres.");
    v.Typed("lamp", &lamp, Lamps(), "A lamp.");
    v.Typed("more", &more, Lamps(), "More lamps.");
  }
};

RoomOptions Room() {
  RoomOptions room;
  room.lamp = Config::FromJson({{"type", "Bulb"}});
  return room;
}

std::string CheckError(const RoomOptions& options) {
  try {
    CheckOptions("Room", options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

std::string ReadError(const std::string& text) {
  try {
    ReadOptions<RoomOptions>(Config::Parse(text, "f"));
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

struct PlanOptions {
  int64_t steps = 3;
  std::string note;
  double price = 1;

  void Visit(FieldVisitor& v) {
    v.FreeOnResume().Field("steps", &steps, AtLeast(0), "Length.");
    v.Field("note", &note, "Any text.");
    v.FreeOnResume().Field("price", &price, Above(0), "Money.");
    v.Moved("length", "'trip.length'");
    v.Renamed("memo", "note", "a memo is longer");
  }
};

TEST_CASE("What may change on resume is marked at the key, and so described") {
  const VisitFields fields = [](FieldVisitor& v) { PlanOptions().Visit(v); };
  CHECK(KeysFreeOnResume(fields) == std::vector<std::string>{"steps", "price"});
  CHECK(DescribeFields(fields) ==
        "- `steps`: integer at least 0; default `3`. Length. May change on resume.\n"
        "- `note`: text; default `\"\"`. Any text.\n"
        "- `price`: number above 0; default `1.0`. Money. May change on resume.\n");
}

TEST_CASE("A key that has moved is an Error that says where, and is not written") {
  CHECK_THROWS_WITH_AS(
      ReadOptions<PlanOptions>(Config::FromJson({{"length", 2}, {"nite", "x"}})),
      "config: 2 problems\n  'length' is now 'trip.length'\n  unknown key 'nite'; valid "
      "keys: steps, note, price; did you mean 'note'?",
      Error);
  CHECK(WriteOptions("", PlanOptions()).Dump(-1) == R"({"steps":3,"note":"","price":1.0})");
}

struct TripOptions {
  Color color = Color(-1);  // must be given

  void Visit(FieldVisitor& v) {
    v.Choice("color", &color, kColors, "Of the car.");
    v.Renamed("paint", "color", "");
  }
};

TEST_CASE("A key that has another name is not missing as well where a config has the old one") {
  CHECK_THROWS_WITH_AS(ReadOptions<TripOptions>(Config::FromJson({{"paint", "red"}})),
                       "config: 'paint' is now 'color'", Error);
  CHECK_THROWS_WITH_AS(ReadOptions<PlanOptions>(Config::FromJson({{"memo", "x"}})),
                       "config: 'memo' is now 'note'; a memo is longer", Error);
  CHECK_THROWS_WITH_AS(ReadOptions<TripOptions>(Config::FromJson({{"unknown", 1}})),
                       "config: 2 problems\n  unknown key 'unknown'; valid keys: color\n  'color' "
                       "is missing; it must be one of red, green",
                       Error);
}

}  // namespace

TEST_CASE("an enum has names and the names have values, by one table") {
  CHECK(NameOf("color", Color::kGreen, kColors) == std::string("green"));
  CHECK(ValueOf("color", "red", kColors) == Color::kRed);
  CHECK_THROWS_WITH_AS(NameOf("color", Color(4), kColors),
                       "There is no color number 4; choices: red, green", Error);
  CHECK_THROWS_WITH_AS(ValueOf("color", "grene", kColors),
                       "There is no color 'grene'; choices: red, green; did you mean 'green'?",
                       Error);
  CHECK_THROWS_WITH_AS(ValueOf("color", "blue", kColors),
                       "There is no color 'blue'; choices: red, green", Error);
}

TEST_CASE("a choice is read, written and described by its name") {
  const Config config =
      Config::Parse(R"({"color": "green", "lamp": {"type": "Bulb"}, "windows": 2})", "f");
  const RoomOptions room = ReadOptions<RoomOptions>(config);
  CHECK(room.color == Color::kGreen);
  CHECK(WriteOptions("", room).json()["color"] == "green");
  const std::string list = DescribeFields([](FieldVisitor& v) { RoomOptions().Visit(v); });
  CHECK(list.find("- `color`: `red`, `green`; default `\"red\"`. Of the walls.\n") !=
        std::string::npos);
  RoomOptions wrong = Room();
  wrong.color = Color(4);
  CHECK_THROWS_WITH_AS(WriteOptions("", wrong),
                       "config: 'color' must be one of red, green, got number 4", Error);
}

struct FlagOptions {
  std::vector<Color> stripes = {Color::kGreen};

  void Visit(FieldVisitor& v) { v.Choice("stripes", &stripes, kColors, "From top to bottom."); }
};

TEST_CASE("a list of choices is read, written and described by their names") {
  const auto flag =
      ReadOptions<FlagOptions>(Config::Parse(R"({"stripes": ["red", "green", "red"]})", "f"));
  CHECK(flag.stripes == std::vector{Color::kRed, Color::kGreen, Color::kRed});
  CHECK(WriteOptions("", flag).Dump(-1) == R"({"stripes":["red","green","red"]})");
  const std::string list = DescribeFields([](FieldVisitor& v) { FlagOptions().Visit(v); });
  CHECK(list.find("- `stripes`: list of `red`, `green`; default `[\"green\"]`. From top to "
                  "bottom.\n") != std::string::npos);
}

TEST_CASE("a list of choices names what is wrong in a config and in options that were set") {
  CHECK_THROWS_WITH_AS(
      ReadOptions<FlagOptions>(Config::Parse(R"({"stripes": ["red", "grene", 3]})", "f")),
      "config: 2 problems\n"
      "  'stripes[1]' must be one of red, green, got \"grene\"; did you mean 'green'?\n"
      "  'stripes[2]' must be one of red, green, got 3",
      Error);
  CHECK_THROWS_WITH_AS(ReadOptions<FlagOptions>(Config::Parse(R"({"stripes": "red"})", "f")),
                       "config: 'stripes' must be a list, each one of red, green, got \"red\"",
                       Error);
  FlagOptions flag;
  flag.stripes = {Color::kRed, Color(4)};
  CHECK_THROWS_WITH_AS(CheckOptions("Flag", flag),
                       "Flag: stripes[1] must be one of red, green, got number 4", Error);
  CHECK_THROWS_WITH_AS(WriteOptions("", flag),
                       "config: 'stripes[1]' must be one of red, green, got number 4", Error);
}

TEST_CASE("an optional integer is null or absent by default and exact where it is given") {
  const auto windows = [](const std::string& member) {
    return ReadOptions<RoomOptions>(
               Config::Parse(R"({"lamp": {"type": "Bulb"})" + member + "}", "f"))
        .windows;
  };
  CHECK(windows("") == std::nullopt);
  CHECK(windows(R"(, "windows": null)") == std::nullopt);
  CHECK(windows(R"(, "windows": 8)") == 8);
  CHECK(ReadError(R"({"lamp": {"type": "Bulb"}, "windows": 9})") ==
        "config: 'windows' must be an integer in [0, 8], got 9");
  CHECK(ReadError(R"({"lamp": {"type": "Bulb"}, "windows": 1.5})") ==
        "config: 'windows' must be an integer in [0, 8], got 1.5");
  RoomOptions room = Room();
  CHECK(WriteOptions("", room).json()["windows"].is_null());
  room.windows = 3;
  CHECK(WriteOptions("", room).json()["windows"] == 3);
  const std::string list = DescribeFields([](FieldVisitor& v) { RoomOptions().Visit(v); });
  CHECK(list.find("- `windows`: null or integer in [0, 8]; default `null`. Ways out.\n") !=
        std::string::npos);
}

TEST_CASE("a config is read to its end and all that is wrong is one Error") {
  CHECK(ReadError(R"({"colour": "red", "doors": "one", "windows": 9, "height": -1,
                      "walls": [1, 0, "long"], "more": [{"type": "Bulp"}, 7,
                      {"type": "Tube", "watt": 1}]})") ==
        "config: 10 problems\n"
        "  unknown key 'colour'; valid keys: color, doors, windows, height, walls, lamp, more; did "
        "you mean 'color'?\n"
        "  'doors' must be an integer of at least 1, got \"one\"\n"
        "  'windows' must be an integer in [0, 8], got 9\n"
        "  'height' must be a number above 0, got -1\n"
        "  'walls[1]' must be a number above 0, got 0\n"
        "  'walls[2]' must be a number above 0, got \"long\"\n"
        "  'lamp' is missing; valid types of lamp: Bulb, Tube\n"
        "  'more[1]' must be an object with a \"type\", got 7; valid types of lamp: Bulb, Tube\n"
        "  'more[0].type' is 'Bulp'; valid types of lamp: Bulb, Tube; did you mean 'Bulb'?\n"
        "  unknown key 'more[2].watt'; valid keys: watts; did you mean 'watts'?");
}

TEST_CASE("problems of several nested objects are reported together, in the order of the fields") {
  CHECK(ReadError(R"({"color": "grren", "lamp": {"type": "Bulb", "watts": -1},
                      "more": [{"type": "Bulp"}, {"type": "Tube", "watt": 1}]})") ==
        "config: 4 problems\n"
        "  'color' must be one of red, green, got \"grren\"; did you mean 'green'?\n"
        "  'lamp.watts' must be a number above 0, got -1\n"
        "  'more[0].type' is 'Bulp'; valid types of lamp: Bulb, Tube; did you mean 'Bulb'?\n"
        "  unknown key 'more[1].watt'; valid keys: watts; did you mean 'watts'?");
}

TEST_CASE("problems of several objects can be collected, and what is right is read") {
  Problems problems("config");
  LampOptions first;
  LampOptions second;
  ReadFields(
      Config::FromJson({{"watts", 7}}, "a"), [&](FieldVisitor& v) { first.Visit(v); }, &problems);
  CHECK_NOTHROW(problems.ThrowIfAny());
  ReadFields(
      Config::FromJson({{"watts", 0}}, "b"), [&](FieldVisitor& v) { second.Visit(v); }, &problems);
  problems.Add("and more");
  CHECK(first.watts == 7);
  CHECK(second.watts == 5);
  CHECK_THROWS_WITH_AS(problems.ThrowIfAny(),
                       "config: 2 problems\n"
                       "  'b.watts' must be a number above 0, got 0\n"
                       "  and more",
                       Error);
}

TEST_CASE("options that a config could have given pass the check of a constructor") {
  RoomOptions room = Room();
  CHECK(CheckError(room) == "no Error");
  room.color = Color::kGreen;
  room.windows = 8;
  room.walls = {};
  room.more = {room.lamp};
  CHECK(CheckError(room) == "no Error");
}

TEST_CASE("the check of a constructor finds each kind of wrong value") {
  const auto error = [](void (*change)(RoomOptions*)) {
    RoomOptions room = Room();
    change(&room);
    return CheckError(room);
  };
  CHECK(error([](RoomOptions* r) { r->color = Color(4); }) ==
        "Room: color must be one of red, green, got number 4");
  CHECK(error([](RoomOptions* r) { r->doors = 0; }) == "Room: doors must be at least 1, got 0");
  CHECK(error([](RoomOptions* r) { r->windows = 9; }) == "Room: windows must be in [0, 8], got 9");
  CHECK(error([](RoomOptions* r) { r->height = -1; }) == "Room: height must be above 0, got -1");
  CHECK(error([](RoomOptions* r) { r->height = std::numeric_limits<double>::quiet_NaN(); }) ==
        "Room: height must be finite, got nan");
  CHECK(error([](RoomOptions* r) { r->height = std::numeric_limits<double>::infinity(); }) ==
        "Room: height must be finite, got inf");
  CHECK(error([](RoomOptions* r) {
          r->walls = {1, 0};
        }) == "Room: walls[1] must be above 0, got 0");
  CHECK(error([](RoomOptions* r) { r->lamp = Config(); }) ==
        "Room: lamp is missing; valid types of lamp: Bulb, Tube");
  CHECK(error([](RoomOptions* r) {
          r->lamp = Config::FromJson({{"type", "Bulp"}});
        }) == "Room: 'lamp.type' is 'Bulp'; valid types of lamp: Bulb, Tube; did you mean 'Bulb'?");
  CHECK(error([](RoomOptions* r) {
          r->more = {Config::FromJson({{"type", "Tube"}, {"watts", 0}})};
        }) == "Room: 'more[0].watts' must be a number above 0, got 0");
}

TEST_CASE("the check of a constructor reports all that is wrong") {
  RoomOptions room = Room();
  room.color = Color(0);
  room.doors = -1;
  CHECK(CheckError(room) ==
        "Room: 2 problems\n"
        "  color must be one of red, green, got number 0\n"
        "  doors must be at least 1, got -1");
}

}  // namespace lopt
