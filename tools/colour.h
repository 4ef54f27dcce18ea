#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace lopt {

// Whether the variable TERM says that a terminal shows plain text alone.
bool IsDumbTerminal();

// Whether text on the stream may have colours: it is a terminal that knows some, and the variable
// NO_COLOR is not set or empty (no-color.org).
bool WantsColour(std::FILE* stream);

// The text in bold, if the stream wants colour; else as it is.
std::string Bold(const std::string& text, std::FILE* stream);

// "lopt: " and the message on standard error, the first word in red where colours are wanted, in
// lines that a terminal has room for. What is not plain text (base/utf8.h) is shown as \x1b, but
// for line breaks. It needs no memory for short messages, since there may be none.
void PrintFailure(std::string_view message);

}  // namespace lopt
