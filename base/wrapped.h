#pragma once

#include <cstddef>
#include <string>

namespace lopt {

// The columns of a terminal that tables are made for.
inline constexpr size_t kTerminalColumns = 80;

// The text in lines of at most `columns` of a terminal, broken at its spaces and line ends. Every
// line begins with `indent`, and none ends the last. A word that is longer has a line of its own.
std::string Wrap(const std::string& text, size_t columns, const std::string& indent);

// The words of a text in lines of at most `columns`, the first of which begins with `head`, the
// others with as many spaces. The last has its end.
std::string Wrapped(const std::string& head, const std::string& text,
                    size_t columns = kTerminalColumns);

}  // namespace lopt
