#include "lopt/base/wrapped.h"

#include <sstream>

#include "lopt/base/utf8.h"

namespace lopt {

std::string Wrap(const std::string& text, size_t columns, const std::string& indent) {
  std::istringstream words(text);
  std::string lines = indent;
  const size_t start = TextWidth(indent);
  size_t used = start;
  for (std::string word; words >> word;) {
    const size_t width = TextWidth(word);
    const bool first = used == start;
    if (!first && used + 1 + width > columns) {
      lines += '\n' + indent;
      used = start;
    } else if (!first) {
      lines += ' ';
      ++used;
    }
    lines += word;
    used += width;
  }
  return lines;
}

std::string Wrapped(const std::string& head, const std::string& text, size_t columns) {
  std::string lines = Wrap(text, columns, std::string(TextWidth(head), ' '));
  lines.replace(0, TextWidth(head), head);
  lines.erase(lines.find_last_not_of(' ') + 1);
  return lines + "\n";
}

}  // namespace lopt
