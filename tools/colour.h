#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace lopt {

// Whether text on the stream may have colours: it is a terminal that knows some (TERM is not
// "dumb"), and the variable NO_COLOR is not set or empty (no-color.org).
bool WantsColour(std::FILE* stream);

// The text in bold, if the stream wants colour; else as it is.
std::string Bold(const std::string& text, std::FILE* stream);

// "lopt: " and the message on standard error, the first word in red where colours are wanted. It
// needs no memory for short messages, since there may be none.
void PrintFailure(std::string_view message);

}  // namespace lopt
