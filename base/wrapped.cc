#include "lopt/base/wrapped.h"

#include <sstream>

namespace lopt {

std::string Wrap(const std::string& text, size_t columns, const std::string& indent) {
  std::istringstream words(text);
  std::string lines = indent;
  size_t used = indent.size();
  for (std::string word; words >> word;) {
    const bool first = used == indent.size();
    if (!first && used + 1 + word.size() > columns) {
      lines += '\n' + indent;
      used = indent.size();
    } else if (!first) {
      lines += ' ';
      ++used;
    }
    lines += word;
    used += word.size();
  }
  return lines;
}

std::string Wrapped(const std::string& head, const std::string& text, size_t columns) {
  std::string lines = Wrap(text, columns, std::string(head.size(), ' '));
  lines.replace(0, head.size(), head);
  lines.erase(lines.find_last_not_of(' ') + 1);
  return lines + "\n";
}

}  // namespace lopt
