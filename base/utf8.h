#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lopt {

// Bytes of the well-formed UTF-8 sequence that `text` begins with; 0 if there is none.
size_t Utf8Length(std::string_view text);

bool IsUtf8(std::string_view text);

// Text that may be no UTF-8, such as a file's name, for a file that must be: with \xff in place of
// a byte that is none.
std::string Utf8Text(std::string_view text);

// Whether all of it is UTF-8 that shows as it is: no control character, nothing that turns the
// direction of writing or has no width.
bool IsPlainText(std::string_view text);

// Columns of a terminal that the text takes: two for each character of East Asian writing and each
// pictograph, one for any other; bytes that are no UTF-8 take one each.
size_t TextWidth(std::string_view text);

// The characters that the text begins with, as many as `columns` hold.
std::string FirstColumns(std::string_view text, size_t columns);

// Text that a stranger may have written, for a message or a log: of at most `most` bytes, with
// \x1b in place of a byte that is not plain text. What is cut ends with how long it was.
std::string PlainText(std::string_view text, size_t most = 200);

// Whether all lines of a text are plain text; the lines as PlainText has them, of any length.
bool HasPlainLines(std::string_view text);
std::string PlainLines(std::string_view text);

}  // namespace lopt
