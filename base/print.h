#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string_view>
#include <utility>

namespace lopt {

// Writes text to standard output or standard error. What cannot be written is lost and throws
// nothing: a run must not end because its terminal is gone or a log's disk is full. Of standard
// output the loss is remembered, for FinishOutput.
void WriteText(std::FILE* stream, std::string_view text);

// Flushes standard output. Returns the errno of the first write to it that failed, 0 if none did.
int FinishOutput();

// Opens /dev/null in place of standard input, output and error where one of them is closed:
// otherwise the next file that is opened takes its number, and messages are written into that file.
// Standard output that was closed counts as output that cannot be written.
void OpenStandardStreams();

template <typename... Args>
void PrintTo(std::FILE* stream, fmt::format_string<Args...> format, Args&&... args) {
  WriteText(stream, fmt::format(format, std::forward<Args>(args)...));
}

// To standard output.
template <typename... Args>
void PrintOut(fmt::format_string<Args...> format, Args&&... args) {
  PrintTo(stdout, format, std::forward<Args>(args)...);
}

// To standard error.
template <typename... Args>
void PrintErr(fmt::format_string<Args...> format, Args&&... args) {
  PrintTo(stderr, format, std::forward<Args>(args)...);
}

}  // namespace lopt
