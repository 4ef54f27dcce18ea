#include "lopt/tools/shell.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "lopt/base/utf8.h"

namespace lopt {

std::string ShellQuoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string("/._-+:,=").find(c) != std::string::npos;
  });
  if (plain) return word;
  if (!IsUtf8(word)) {
    std::string text = "$'";
    for (const char c : word) {
      const auto byte = static_cast<unsigned char>(c);
      const bool as_it_is = byte >= 0x20 && byte < 0x7f && c != '\'' && c != '\\';
      text += as_it_is ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
    }
    return text + "'";
  }
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace lopt
