#include <csignal>

#include "lopt/tools/commands.h"
#include "lopt/tools/hang_up.h"
#include "lopt/tools/stop_signal.h"

namespace {

// Before any library begins, and so before a signal can come to a program without a handler.
void BeginSignals(int argc, char** argv, char** /*environment*/) {
  // A file that would become longer than `ulimit -f` allows is an error of the write.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);  // where it is ignored, nobody is told how a process has ended
  lopt::NoteHangUp();
  lopt::CatchEarlySignals(argc > 1 ? argv[1] : nullptr);
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const begin)(int, char**,
                                                                  char**) = BeginSignals;

}  // namespace

int main(int argc, char** argv) { return lopt::RunProgram({argv + 1, argv + argc}); }
