#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lopt {

// Text for use between tags and in attributes: & < > " ' are escaped, and so are bytes that may not
// stand in an HTML or XML document (control characters, what is not UTF-8), as U+FFFD.
std::string EscapeHtml(std::string_view text);

// A table; the cells are HTML, those after the first `left_columns` are aligned right.
std::string HtmlTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows, size_t left_columns);

}  // namespace lopt
