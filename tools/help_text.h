#pragma once

#include <cstdio>
#include <string>

#include "lopt/tools/command_line.h"

namespace lopt {

// How wide help is: the terminal, or kTerminalColumns where the stream is none.
size_t HelpColumns(std::FILE* stream);

// An entry of a list: `left`, and the text from `column` on, which begins a line of its own where
// `left` is longer.
std::string HelpEntry(const std::string& left, const std::string& text, size_t column,
                      size_t columns);

// What stands below the options of a command, where paragraphs and lists are wrapped, but lines
// that begin with spaces and hold no list, such as examples, stay as they are.
std::string TextBelowOptions(const std::string& text, size_t columns);

// What --help prints of a command: its synopsis, its options in their groups, and what stands below
// them.
std::string HelpText(const CommandHelp& help, size_t columns);

}  // namespace lopt
