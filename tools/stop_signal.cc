#include "tools/stop_signal.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

namespace lopt {

namespace {

std::atomic<bool> stop_requested = false;
std::atomic<bool> says_so = true;
static_assert(std::atomic<bool>::is_always_lock_free);

void OnSignal(int /*signal*/) {
  constexpr std::string_view kMessage =
      "\nStopping after this update; once more to stop at once.\n";
  stop_requested = true;
  if (says_so) {
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  }
}

}  // namespace

const std::atomic<bool>* StopOnSignals(bool speaks) {
  says_so = speaks;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  return &stop_requested;
}

}  // namespace lopt
