#include "lopt/tools/report/html.h"

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

std::string HtmlTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows, size_t left_columns) {
  const auto line = [&](const std::vector<std::string>& cells, std::string_view tag) {
    std::string text = "<tr>";
    for (size_t i = 0; i < cells.size(); ++i) {
      text += "<";
      text += tag;
      text += i < left_columns ? ">" : " class=\"number\">";
      text += cells[i];
      text += "</";
      text += tag;
      text += ">";
    }
    return text + "</tr>\n";
  };
  std::string html = "<div class=\"scroll\"><table>\n";
  if (!header.empty()) html += "<thead>" + line(header, "th") + "</thead>\n";
  html += "<tbody>\n";
  for (const auto& row : rows) html += line(row, "td");
  return html + "</tbody></table></div>\n";
}

}  // namespace lopt
