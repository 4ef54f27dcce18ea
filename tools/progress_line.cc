#include "lopt/tools/progress_line.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "lopt/base/print.h"
#include "lopt/base/utf8.h"
#include "lopt/base/wrapped.h"
#include "lopt/tools/colour.h"

namespace lopt {

namespace {

constexpr double kTerminalSeconds = 0.2;
constexpr double kPlainSeconds = 5;

// The line that the next one replaces. Its mutex is held while it, or a line of the log, is
// written.
struct OpenLine {
  std::mutex mutex;
  std::FILE* stream = nullptr;  // nullptr: there is none
  std::string text;             // as it was written
};

OpenLine& TheOpenLine() {
  static OpenLine open;
  return open;
}

void WriteNow(std::FILE* stream, std::string_view text) {
  WriteText(stream, text);
  std::fflush(stream);
}

}  // namespace

bool ProgressLine::Fits(const std::string& line) const {
  return !on_terminal() || TextWidth(line) < Width();
}

bool ProgressLine::IsDue(double seconds) const {
  const double interval = on_terminal() ? kTerminalSeconds : kPlainSeconds;
  return printed_seconds_ < 0 || seconds >= printed_seconds_ + interval;
}

void ProgressLine::Print(std::string line, double seconds) {
  line = PlainText(line, std::string::npos);
  if (on_terminal()) {
    if (!Fits(line)) line = FirstColumns(line, Width() - 1);
    const size_t first = std::min(line.find("  "), line.size());
    std::string text =
        fmt::format("\r{}{}\x1b[K", Bold(line.substr(0, first), stream_), line.substr(first));
    OpenLine& open = TheOpenLine();
    const std::lock_guard lock(open.mutex);
    WriteNow(stream_, text);
    open.stream = stream_;
    open.text = std::move(text);
  } else {
    WriteNow(stream_, line + '\n');
  }
  printed_seconds_ = seconds;
}

void ProgressLine::End() {
  if (!on_terminal()) return;
  OpenLine& open = TheOpenLine();
  const std::lock_guard lock(open.mutex);
  if (open.stream != stream_) return;
  WriteNow(stream_, "\n");
  open.stream = nullptr;
}

WithoutProgressLine::WithoutProgressLine() : lock_(TheOpenLine().mutex) {
  const OpenLine& open = TheOpenLine();
  if (open.stream != nullptr) WriteNow(open.stream, "\r\x1b[K");
}

WithoutProgressLine::~WithoutProgressLine() {
  const OpenLine& open = TheOpenLine();
  if (open.stream != nullptr) WriteNow(open.stream, open.text);
}

int TerminalColumns(std::FILE* stream) {
  winsize size = {};
  if (isatty(fileno(stream)) == 0) return 0;
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

int RewritableColumns(std::FILE* stream) { return IsDumbTerminal() ? 0 : TerminalColumns(stream); }

std::string FitTerminal(std::FILE* stream, std::string_view text) {
  const auto columns = static_cast<size_t>(TerminalColumns(stream));
  if (columns == 0 || TextWidth(text) <= columns) return std::string(text);
  std::string fitted;
  while (true) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    if (TextWidth(line) <= columns || line.starts_with(' ')) {
      fitted += line;
    } else if (line.starts_with("- ")) {
      fitted += "- " + Wrap(line.substr(2), columns, "  ").substr(2);
    } else {
      fitted += Wrap(line, columns, "");
    }
    if (end == text.size()) return fitted;
    fitted += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string FormatDuration(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  const int64_t hours = whole / 3600;
  const int64_t minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string Counted(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string FormatCount(double count) {
  const std::string digits = fmt::format("{:.0f}", count);
  std::string grouped;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

std::string FormatRate(double rate) {
  return rate < 999.5 ? fmt::format("{:.3g}", rate) : FormatCount(rate);
}

}  // namespace lopt
