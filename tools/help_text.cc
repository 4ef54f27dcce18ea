#include "lopt/tools/help_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "lopt/base/wrapped.h"
#include "lopt/tools/progress_line.h"

namespace lopt {

namespace {

constexpr size_t kLongestLeft = 26;  // of what stands in a line with its text

std::string LeftOf(const CommandHelp::Option& option) {
  return fmt::format("  {}{}{}", option.name, option.value.empty() ? "" : " ", option.value);
}

// A line of a list, "  name    text", is wrapped under its text; any other stays as it is.
std::string IndentedLine(const std::string& line, size_t columns) {
  const size_t gap = line.find("  ", line.find_first_not_of(' '));
  if (gap == std::string::npos) return line + '\n';
  const size_t text = line.find_first_not_of(' ', gap);
  return HelpEntry(line.substr(0, gap), line.substr(text), text, columns);
}

}  // namespace

size_t HelpColumns(std::FILE* stream) {
  const int columns = TerminalColumns(stream);
  return columns > 0 ? static_cast<size_t>(columns) : kTerminalColumns;
}

std::string HelpEntry(const std::string& left, const std::string& text, size_t column,
                      size_t columns) {
  constexpr size_t kNarrowest = 20;  // of the text
  if (columns < column + kNarrowest) return left + '\n' + Wrapped("    ", text, columns);
  if (left.size() >= column) return left + '\n' + Wrapped(std::string(column, ' '), text, columns);
  return Wrapped(fmt::format("{:<{}}", left, column), text, columns);
}

std::string TextBelowOptions(const std::string& text, size_t columns) {
  std::istringstream lines(text);
  std::string result;
  std::string paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) result += Wrap(paragraph, columns, "") + '\n';
    paragraph.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != ' ') {  // such lines are one paragraph
      paragraph += line + ' ';
      continue;
    }
    end_paragraph();
    result += line.empty() ? "\n" : IndentedLine(line, columns);
  }
  end_paragraph();
  return result;
}

std::string HelpText(const CommandHelp& help, size_t columns) {
  size_t column = 0;
  for (const CommandHelp::Option& option : help.options) {
    column = std::max(column, std::min(LeftOf(option).size(), kLongestLeft) + 1);
  }
  std::string text = Wrap("Usage: " + help.synopsis, columns, "") + '\n';
  std::string group;
  for (const CommandHelp::Option& option : help.options) {
    if (option.group != group) text += fmt::format("\n{}:\n", option.group);
    group = option.group;
    text += HelpEntry(LeftOf(option), option.text, column, columns);
  }
  return text + '\n' + TextBelowOptions(help.examples, columns);
}

}  // namespace lopt
