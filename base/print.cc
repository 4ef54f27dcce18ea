#include "lopt/base/print.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>

namespace lopt {

namespace {

std::atomic<int> output_error = 0;  // errno of the first failed write to standard output

// A reader that has gone, as `head` does, wants no more.
void NoteOutputError(int error) {
  if (error == EPIPE) return;
  int none = 0;
  output_error.compare_exchange_strong(none, error);
}

}  // namespace

void WriteText(std::FILE* stream, std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stream) != text.size() && stream == stdout) {
    NoteOutputError(errno == 0 ? EIO : errno);
  }
}

int FinishOutput() {
  errno = 0;
  if (std::fflush(stdout) != 0) NoteOutputError(errno == 0 ? EIO : errno);
  return output_error;
}

void OpenStandardStreams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    if (descriptor == STDOUT_FILENO) NoteOutputError(EBADF);
    // The lowest free number, which is this one: those below are open.
    if (::open("/dev/null", descriptor == STDIN_FILENO ? O_RDONLY : O_WRONLY) == -1) return;
  }
}

}  // namespace lopt
