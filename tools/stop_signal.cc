#include "tools/stop_signal.h"

#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace lopt {

namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);
std::string message;  // written before the handler is installed

void OnSignal(int /*signal*/) {
  stop_requested = true;
  [[maybe_unused]] const auto written = write(STDERR_FILENO, message.data(), message.size());
}

}  // namespace

const std::atomic<bool>* StopOnSignals(std::string_view after) {
  message =
      after.empty() ? "" : fmt::format("\nStopping after {}; once more to stop at once.\n", after);
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  return &stop_requested;
}

}  // namespace lopt
