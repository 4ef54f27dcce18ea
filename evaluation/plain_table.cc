#include "lopt/evaluation/plain_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "lopt/base/utf8.h"
#include "lopt/base/wrapped.h"

namespace lopt {
namespace {

constexpr size_t kLeastNameWidth = 10;

// The name in at most `width` columns, without its middle where it is longer.
std::string CutName(const std::string& name, size_t width) {
  if (TextWidth(name) <= width) return name;
  const size_t end = (width - 2) / 2;
  std::string_view last = name;
  while (TextWidth(last) > end) last.remove_prefix(std::max<size_t>(Utf8Length(last), 1));
  return fmt::format("{}..{}", FirstColumns(name, width - 2 - end), last);
}

}  // namespace

PlainTable::PlainTable(std::vector<Column> columns, const std::string& mark) {
  std::vector<std::string> names;
  for (Column& column : columns) {
    names.push_back(std::move(column.name));
    least_.push_back(column.least);
  }
  Add(std::move(names), mark);
}

void PlainTable::Add(std::vector<std::string> cells, const std::string& mark) {
  marks_.push_back(mark);
  lines_.push_back(std::move(cells));
}

std::string PlainTable::Text(size_t width) const {
  std::vector<size_t> widths = least_;
  for (const auto& line : lines_) {
    for (size_t c = 0; c < widths.size(); ++c) widths[c] = std::max(widths[c], TextWidth(line[c]));
  }
  constexpr size_t kAlways = 2;  // columns
  size_t columns = widths.size();
  size_t others = marks_.front().size();
  for (size_t c = 1; c < columns; ++c) others += 2 + widths[c];
  const size_t least_name = std::min(widths[0], kLeastNameWidth);
  while (columns > kAlways && others + least_name > width) others -= 2 + widths[--columns];
  widths[0] = std::min(widths[0], std::max(kLeastNameWidth, width > others ? width - others : 0));
  std::string text;
  for (size_t l = 0; l < lines_.size(); ++l) {
    const std::string name = CutName(lines_[l][0], widths[0]);
    text += fmt::format("{}{}{:{}}", marks_[l], name, "", widths[0] - TextWidth(name));
    for (size_t c = 1; c < columns; ++c) {
      text += fmt::format("  {:>{}}", lines_[l][c], widths[c]);
    }
    text += '\n';
  }
  if (columns < widths.size()) {
    const auto& names = lines_.front();
    const std::string left_out = fmt::format(
        "Left out, for lines have {} characters: {}", width,
        fmt::join(names.begin() + static_cast<std::ptrdiff_t>(columns), names.end(), ", "));
    text += Wrapped("", left_out, width);
  }
  return text;
}

}  // namespace lopt
