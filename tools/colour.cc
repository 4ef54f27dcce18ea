#include "lopt/tools/colour.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "lopt/base/print.h"

namespace lopt {

namespace {

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool WantsColour(std::FILE* stream) {
  return Variable("NO_COLOR").empty() && Variable("TERM") != "dumb" && isatty(fileno(stream)) != 0;
}

std::string Bold(const std::string& text, std::FILE* stream) {
  return WantsColour(stream) ? fmt::format("\x1b[1m{}\x1b[0m", text) : text;
}

void PrintFailure(std::string_view message) {
  const bool colour = WantsColour(stderr);
  PrintErr("{}lopt:{} {}\n", colour ? "\x1b[1;31m" : "", colour ? "\x1b[0m" : "", message);
}

}  // namespace lopt
