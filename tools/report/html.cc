#include "lopt/tools/report/html.h"

#include <array>
#include <cstddef>

namespace lopt {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes of the well-formed UTF-8 sequence that `text` begins with; 0 if there is none.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 && first <= 0xF4   ? 4
                        : first >= 0xE0 && first <= 0xEF ? 3
                        : first >= 0xC2 && first <= 0xDF ? 2
                                                         : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) > 0x9F;
  const bool too_large = first == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || too_large ? 0 : length;
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const char c = text[0];
    const size_t length = SequenceLength(text);
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
