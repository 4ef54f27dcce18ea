#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lopt {

// Text for use between tags and in attributes: & < > " ' are escaped, and so are bytes that may not
// stand in an HTML or XML document (control characters, what is not UTF-8), as U+FFFD.
std::string EscapeHtml(std::string_view text);

struct HtmlRow {
  std::vector<std::string> cells = {};  // HTML; the first says what the row is
  bool ours = false;                    // in bold
};

// A table, which scrolls on narrow screens while its first column stays; cells after the first
// `left_columns` are aligned right. `caption` is plain text; it may be empty.
std::string HtmlTable(const std::string& caption, const std::vector<std::string>& header,
                      const std::vector<HtmlRow>& rows, size_t left_columns);

}  // namespace lopt
