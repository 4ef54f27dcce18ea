#include "tools/hang_up.h"

#include <csignal>

namespace lopt {

namespace {

bool ignored = false;

// UCX, which comes with MPICH, takes SIGHUP for itself when it is loaded. This runs before.
void Note() {
  struct sigaction action = {};
  ::sigaction(SIGHUP, nullptr, &action);
  ignored = action.sa_handler == SIG_IGN;
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const note)() = Note;

}  // namespace

bool HangUpIsIgnored() { return ignored; }

}  // namespace lopt
