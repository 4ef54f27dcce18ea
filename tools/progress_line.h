#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace lopt {

// Shows how work goes on a stream: one line that is rewritten in place on a terminal, a line every
// few seconds otherwise.
class ProgressLine {
 public:
  // `columns`: width of the terminal; 0: not a terminal.
  ProgressLine(std::FILE* stream, int columns) : stream_(stream), columns_(columns) {}

  bool on_terminal() const { return columns_ > 0; }
  // Whether a line is shown whole: always where it is not rewritten in place.
  bool Fits(const std::string& line) const { return !on_terminal() || line.size() < Width(); }
  // Of such a terminal.
  size_t Width() const { return static_cast<size_t>(columns_); }
  // Whether a line at this time since the start is not too soon after the last one.
  bool IsDue(double seconds) const;
  // Cuts what does not fit. Where colours are wanted, what stands before the first two spaces is
  // bold.
  void Print(std::string line, double seconds);
  // Ends the line, if there was one.
  void End();

 private:
  std::FILE* stream_;
  int columns_;
  double printed_seconds_ = -1;  // -1: nothing yet
};

// The terminal's width if the stream is one, else 0.
int TerminalColumns(std::FILE* stream);

// "0:42", "3:07:09".
std::string FormatDuration(double seconds);
// "1 thread", "2 threads".
std::string Counted(int64_t count, const std::string& noun);
// "5,860".
std::string FormatCount(double count);
// "64.6", "1,350": three digits, more where there are more before the point.
std::string FormatRate(double rate);

}  // namespace lopt
