#include "lopt/base/wrapped.h"

#include <sstream>

namespace lopt {

std::string Wrapped(const std::string& head, const std::string& text) {
  std::string lines = head;
  size_t column = head.size();
  std::istringstream words(text);
  bool first = true;
  for (std::string word; words >> word; first = false) {
    if (!first && column + 1 + word.size() > kTerminalColumns) {
      lines += '\n';
      lines.append(head.size(), ' ');
      column = head.size();
      first = true;
    }
    lines += (first ? "" : " ") + word;
    column += word.size() + (first ? 0 : 1);
  }
  lines.erase(lines.find_last_not_of(' ') + 1);
  return lines + "\n";
}

}  // namespace lopt
