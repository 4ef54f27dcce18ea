#include "lopt/tools/hang_up.h"

#include <csignal>

namespace lopt {

namespace {

bool ignored = false;

}  // namespace

void NoteHangUp() {
  struct sigaction action = {};
  ::sigaction(SIGHUP, nullptr, &action);
  ignored = action.sa_handler == SIG_IGN;
}

bool HangUpIsIgnored() { return ignored; }

}  // namespace lopt
