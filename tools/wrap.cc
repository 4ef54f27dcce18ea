#include "lopt/tools/wrap.h"

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

}  // namespace lopt
