#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

namespace lopt {

// Shows how work goes on a stream: one line that is rewritten in place on a terminal, a line every
// few seconds otherwise.
class ProgressLine {
 public:
  // `columns`: RewritableColumns of the stream.
  ProgressLine(std::FILE* stream, int columns) : stream_(stream), columns_(columns) {}
  // Ends the line, so that the message of an error begins one of its own.
  ~ProgressLine() { End(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool on_terminal() const { return columns_ > 0; }
  // Whether a line is shown whole: always where it is not rewritten in place.
  bool Fits(const std::string& line) const;
  // Of such a terminal.
  size_t Width() const { return static_cast<size_t>(columns_); }
  // Whether a line at this time since the start is not too soon after the last one.
  bool IsDue(double seconds) const;
  // As plain text, since strangers may have named what it says. Cuts what does not fit. Where
  // colours are wanted, what stands before the first two spaces is bold.
  void Print(std::string line, double seconds);
  // Ends the line, if there was one.
  void End();

 private:
  std::FILE* stream_;
  int columns_;
  double printed_seconds_ = -1;  // -1: nothing yet
};

// While it lives, the progress line that is open on a terminal, if there is one, is not there; then
// it is written again. For lines that others write, such as those of the log.
class WithoutProgressLine {
 public:
  WithoutProgressLine();
  ~WithoutProgressLine();
  WithoutProgressLine(const WithoutProgressLine&) = delete;
  WithoutProgressLine& operator=(const WithoutProgressLine&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
};

// The terminal's width if the stream is one, else 0.
int TerminalColumns(std::FILE* stream);
// The same where a line can be written anew: 0 also where TERM is "dumb".
int RewritableColumns(std::FILE* stream);
// The text, whose lines end before the edge of a terminal: broken at spaces, those of a list ("- ")
// go on under their text, and those that begin with a space, such as commands to copy, stay. As it
// is for a stream that is no terminal.
std::string FitTerminal(std::FILE* stream, std::string_view text);

// "0:42", "3:07:09".
std::string FormatDuration(double seconds);
// "1 thread", "2 threads".
std::string Counted(int64_t count, const std::string& noun);
// "5,860".
std::string FormatCount(double count);
// "64.6", "1,350": three digits, more where there are more before the point.
std::string FormatRate(double rate);

}  // namespace lopt
