#include "lopt/tools/report/html.h"

#include <fmt/format.h>

#include <cstddef>

#include "lopt/base/utf8.h"

namespace lopt {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const char c = text[0];
    const size_t length = Utf8Length(text);
    const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t';
    if (length == 0 || control || c == '\x7F') {
      escaped += kReplacement;
      text.remove_prefix(1);
      continue;
    }
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return escaped;
}

std::string HtmlTable(const std::string& caption, const std::vector<std::string>& header,
                      const std::vector<HtmlRow>& rows, size_t left_columns) {
  const auto line = [&](const HtmlRow& row, bool head) {
    std::string text = row.ours ? "<tr class=\"ours\">" : "<tr>";
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const std::string_view tag = head || i == 0 ? "th" : "td";
      text += fmt::format("<{}{}{}>{}</{}>", tag,
                          head     ? " scope=\"col\""
                          : i == 0 ? " scope=\"row\""
                                   : "",
                          i < left_columns ? "" : " class=\"number\"", row.cells[i], tag);
    }
    return text + "</tr>\n";
  };
  std::string html = "<div class=\"scroll\"><table>\n";
  if (!caption.empty()) html += "<caption><span>" + EscapeHtml(caption) + "</span></caption>\n";
  if (!header.empty()) html += "<thead>" + line({.cells = header}, true) + "</thead>\n";
  html += "<tbody>\n";
  for (const HtmlRow& row : rows) html += line(row, false);
  return html + "</tbody></table></div>\n";
}

}  // namespace lopt
