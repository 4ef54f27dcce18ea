#pragma once

#include <string>

namespace lopt {

// The columns of a terminal that tables are made for.
inline constexpr size_t kTerminalColumns = 80;

// The words of a text in lines of at most kTerminalColumns, the first of which begins with `head`,
// the others with as many spaces.
std::string Wrapped(const std::string& head, const std::string& text);

}  // namespace lopt
