#include "lopt/tools/colour.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "lopt/base/print.h"

namespace lopt {

namespace {

std::string Styled(const std::string& text, const char* style, std::FILE* stream) {
  return WantsColour(stream) ? fmt::format("\x1b[{}m{}\x1b[0m", style, text) : text;
}

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool WantsColour(std::FILE* stream) {
  return Variable("NO_COLOR").empty() && Variable("TERM") != "dumb" && isatty(fileno(stream)) != 0;
}

std::string Bold(const std::string& text, std::FILE* stream) { return Styled(text, "1", stream); }

std::string BoldRed(const std::string& text, std::FILE* stream) {
  return Styled(text, "1;31", stream);
}

void PrintFailure(const std::string& message) {
  PrintErr("{} {}\n", BoldRed("lopt:", stderr), message);
}

}  // namespace lopt
