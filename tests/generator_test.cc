#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/paths.h"

// A machine need not have what CMake takes where nothing is said, which is make. So a command that
// configures a build names its generator, or a preset that does.

namespace lopt {
namespace {

namespace fs = std::filesystem;

// The commands in the text that configure a build without naming a generator.
std::vector<std::string> CommandsWithoutGenerator(const std::string& text) {
  static const std::regex kLineContinued("\\\\\n");
  static const std::regex kCommand("(\\bcmake|\\$CMAKE|CMAKE_COMMAND\\})[\"']*\\s([^`;&|\n]*)");
  static const std::regex kConfigures("(^|\\s)(-[SB]|\\.\\.?(\\s|$))");
  static const std::regex kNamesGenerator("(^|\\s)(-G|--preset)");
  static const std::regex kDoesOtherThings("(^|\\s)(--build|--install|-E|-P)\\s");
  const std::string lines = std::regex_replace(text, kLineContinued, " ");
  std::vector<std::string> found;
  for (std::sregex_iterator it(lines.begin(), lines.end(), kCommand), end; it != end; ++it) {
    const std::string words = (*it)[2];
    if (std::regex_search(words, kConfigures) && !std::regex_search(words, kNamesGenerator) &&
        !std::regex_search(words, kDoesOtherThings)) {
      found.push_back(it->str());
    }
  }
  return found;
}

// Pages, scripts, build and container files, from the repository's root.
std::vector<fs::path> Texts() {
  const fs::path root = SourcePath("");
  std::vector<fs::path> files;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator();
       ++it) {
    const std::string name = it->path().filename();
    if (it->is_directory()) {
      if (name.starts_with("build") || name == ".git" || name == "runs" || name == "corpus") {
        it.disable_recursion_pending();
      }
      continue;
    }
    const std::string extension = it->path().extension();
    const bool script = extension.empty() && it->is_regular_file();
    if (script || extension == ".md" || extension == ".sh" || extension == ".py" ||
        extension == ".txt" || extension == ".cmake" || extension == ".toml" ||
        extension == ".yaml") {
      files.push_back(it->path());
    }
  }
  return files;
}

std::string Read(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("Commands that configure a build without a generator are found") {
  for (const std::string text :
       {"cmake -S . -B build", "`cmake -B build` makes", "cmake ..", "cmake .\n",
        "\"$CMAKE\" -S \"$x\" -B y >log", "'${CMAKE_COMMAND}' -S 'x' \\\n -B y",
        "cmake -S a -B b && cmake -S a -B b -G Ninja"}) {
    CAPTURE(text);
    CHECK_EQ(CommandsWithoutGenerator(text).size(), 1);
  }
  for (const std::string text : {"cmake -S . -B build -G Ninja", "cmake --preset release -S .",
                                 "cmake --build build", "\"$CMAKE\" --install x --prefix .",
                                 "cmake -S x \\\n  -B y \\\n  -G 'Ninja'", "a cmake; then -S x"}) {
    CAPTURE(text);
    CHECK_EQ(CommandsWithoutGenerator(text), std::vector<std::string>());
  }
}

TEST_CASE("Every command that configures a build names a generator or a preset") {
  const std::vector<fs::path> files = Texts();
  REQUIRE_GT(files.size(), 50);
  REQUIRE(std::find(files.begin(), files.end(), fs::path(SourcePath("tests/install/run"))) !=
          files.end());
  for (const fs::path& file : files) {
    for (const std::string& command : CommandsWithoutGenerator(Read(file))) {
      FAIL_CHECK(file.string(), " has a command that names neither: ", command);
    }
  }
}

}  // namespace lopt
