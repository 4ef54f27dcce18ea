#include "lopt/tools/colour.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "lopt/base/print.h"
#include "lopt/base/utf8.h"
#include "lopt/tools/progress_line.h"

namespace lopt {

namespace {

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool IsDumbTerminal() { return Variable("TERM") == "dumb"; }

bool WantsColour(std::FILE* stream) {
  return Variable("NO_COLOR").empty() && !IsDumbTerminal() && isatty(fileno(stream)) != 0;
}

std::string Bold(const std::string& text, std::FILE* stream) {
  return WantsColour(stream) ? fmt::format("\x1b[1m{}\x1b[0m", text) : text;
}

void PrintFailure(std::string_view message) {
  constexpr std::string_view kName = "lopt: ";
  const bool colour = WantsColour(stderr);
  const auto columns = static_cast<size_t>(TerminalColumns(stderr));
  std::string plain;
  if (!HasPlainLines(message)) {  // a stranger's text in it could drive the terminal
    plain = PlainLines(message);
    message = plain;
  }
  std::string fitted;
  if (columns > 0 && kName.size() + message.size() > columns) {
    fitted = FitTerminal(stderr, fmt::format("{}{}", kName, message));
    message = std::string_view(fitted).substr(kName.size());
  }
  PrintErr("{}lopt:{} {}\n", colour ? "\x1b[1;31m" : "", colour ? "\x1b[0m" : "", message);
}

}  // namespace lopt
