#include <doctest/doctest.h>

#include "lopt/base/error.h"
#include "lopt/base/presets.h"

namespace lopt {
namespace {

constexpr EmbeddedFile kFiles[] = {
    {"long", "// Takes a day.\n// More of it.\n{\"steps\": 9}\n"},
    {"fast", "// Takes a second.\n{\"steps\": 1}\n"},
};

TEST_CASE("A preset has the name of its file, the comment in its first line and a config") {
  const Presets presets("recipe", kFiles);
  REQUIRE(presets.all().size() == 2);
  CHECK(presets.all()[0].name == "fast");
  CHECK(presets.all()[0].summary == "Takes a second.");
  CHECK(presets.all()[1].summary == "Takes a day.");
  CHECK(presets.Find("long").Dump(-1) == R"({"steps":9})");
  CHECK(presets.List(5) == "  fast  Takes a second.\n  long  Takes a day.\n");
}

TEST_CASE("An unknown preset is answered with the names, a bad file with what it lacks") {
  CHECK_THROWS_WITH_AS(
      Presets("recipe", kFiles).Find("fats"),
      "There is no recipe 'fats'; the presets are fast, long; did you mean 'fast'?", Error);
  constexpr EmbeddedFile kSilent[] = {{"silent", "{}"}};
  CHECK_THROWS_WITH_AS(Presets("recipe", kSilent),
                       "recipe silent: its first line must be a comment that says what it is",
                       Error);
}

}  // namespace
}  // namespace lopt
