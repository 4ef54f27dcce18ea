#pragma once

#include <cstddef>
#include <string>

namespace lopt {

// The text in lines of at most `columns` characters, broken at its spaces and line ends. Every line
// begins with `indent`, and none ends the last. A word that is longer has a line of its own.
std::string Wrap(const std::string& text, size_t columns, const std::string& indent);

}  // namespace lopt
