#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/wrapped.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/help_text.h"
#include "tests/paths.h"
#include "tests/temp_directory.h"
#include "tests/terminal.h"
#include "tests/text_parts.h"

namespace lopt {

namespace {

CommandHelp SomeHelp() {
  return {.synopsis = "lopt sow FIELD",
          .options = {{"What", "--seed", "KIND", "What is sown: rye, oats or barley."},
                      {"What", "--dry", "", "Only say it."},
                      {"Where", "--a-very-long-name-of-one", "OPTION", "Its text is below."}},
          .has_arguments = true,
          .examples =
              "It sows what it is told,\nwhere it is told.\n\nFields:\n"
              "  north  Where the wind is cold in spring.\n\n"
              "Example:\n  lopt sow north --seed rye --a-very-long-name-of-one 3\n"};
}

size_t Longest(const std::string& text) {
  size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    longest = std::max(longest, line.size());
  }
  return longest;
}

}  // namespace

TEST_CASE("Text is wrapped at its spaces") {
  CHECK_EQ(Wrap("a bc  def\nghij", 6, ""), "a bc\ndef\nghij");
  CHECK_EQ(Wrap("a bc def", 6, "  "), "  a bc\n  def");
  CHECK_EQ(Wrap("unbreakable a", 4, ""), "unbreakable\na");
  CHECK_EQ(Wrap("abcd", 4, ""), "abcd");
  CHECK_EQ(Wrap("", 4, "// "), "// ");
}

TEST_CASE("Help has its options in groups, and paragraphs and lists are as wide as is told") {
  CHECK_EQ(HelpText(SomeHelp(), 50),
           "Usage: lopt sow FIELD\n"
           "\n"
           "What:\n"
           "  --seed KIND              What is sown: rye, oats\n"
           "                           or barley.\n"
           "  --dry                    Only say it.\n"
           "\n"
           "Where:\n"
           "  --a-very-long-name-of-one OPTION\n"
           "                           Its text is below.\n"
           "\n"
           "It sows what it is told, where it is told.\n"
           "\n"
           "Fields:\n"
           "  north  Where the wind is cold in spring.\n"
           "\n"
           "Example:\n"
           "  lopt sow north --seed rye --a-very-long-name-of-one 3\n");
  const std::string narrow = HelpText(SomeHelp(), 30);
  CHECK_NE(narrow.find("\nIt sows what it is told, where\nit is told.\n"), std::string::npos);
  CHECK_NE(narrow.find("\n  north  Where the wind is\n         cold in spring.\n"),
           std::string::npos);
  const std::string narrowest = HelpText(SomeHelp(), 24);
  CHECK_NE(narrowest.find("\n  --seed KIND\n    What is sown: rye,\n    oats or barley.\n"),
           std::string::npos);
}

TEST_CASE("The help of every command fills a narrow and a wide terminal and does not leave it") {
  for (const Command& command : Commands()) {
    CAPTURE(command.name);
    const CommandHelp help = HelpOf(command);
    for (const size_t columns : {80, 120, 200}) {
      CAPTURE(columns);
      CHECK_LE(Longest(HelpText(help, columns)), columns);
    }
    CHECK_EQ(HelpText(help, 100).find(" \n"), std::string::npos);
  }
  CHECK_GT(Longest(HelpText(HelpOf(Commands()[0]), 200)), 150);
}

TEST_CASE("The notes of manual pages are wrapped, and examples stay") {
  const TempDirectory scratch;
  REQUIRE_EQ(ManualCommand({"--out", scratch / "man"}), kExitDone);
  for (const Command& command : Commands()) {
    CAPTURE(command.name);
    std::istringstream page(
        ReadTextFile(fmt::format("{}/man/lopt-{}.1", scratch.path(), command.name)));
    bool notes = false;
    for (std::string line; std::getline(page, line);) {
      if (line == ".nf" || line == ".fi") notes = line == ".nf";
      if (!notes) continue;
      for (size_t at; (at = line.find("\\-")) != std::string::npos;) line.erase(at, 1);
      CAPTURE(line);
      CHECK_LE(line.size(), line.starts_with(' ') ? 80 : 73);
    }
  }
  CHECK_NE(ReadTextFile(scratch / "man/lopt-launch.1")
               .find("\n  lopt launch \\-n 4 \\-\\- meta\\-train \\-\\-preset tutorial\\-16 "
                     "\\-\\-out runs/first\n"),
           std::string::npos);
}

TEST_CASE("On a terminal help takes its width") {
  const auto help = [](int columns) {
    return RunOnTerminal({BuildPath("lopt"), "help", "meta-train"}, columns).output;
  };
  const std::string wide = help(200);
  CHECK_GT(Longest(wide), 150);
  CHECK_LE(Longest(wide), 200);
  CHECK_LE(Longest(help(80)), 80);
  CHECK_NE(wide.find("\r\nMany processes:\r\n  --learner-only "), std::string::npos);
  const std::string commands = RunOnTerminal({BuildPath("lopt"), "--help"}, 80).output;
  const size_t developers = At(commands, "\r\nCommands for developers:\r\n");
  for (const char* command : {"check", "bench", "verify-kernels", "simulate"}) {
    CHECK_GT(At(commands, std::string("\r\n  ") + command + " "), developers);
  }
  CHECK_LT(At(commands, "\r\n  version "), developers);
}

}  // namespace lopt
