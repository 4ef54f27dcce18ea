#include "lopt/tools/stop_signal.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>

#include "lopt/tools/hang_up.h"

namespace lopt {

namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);
// Written before the handler is installed.
std::string message;
bool output_is_no_stop = false;

// What has no reader any more goes nowhere: a second write would fail again.
void DropOutput(int descriptor) {
  pollfd output = {.fd = descriptor, .events = 0, .revents = 0};
  if (::poll(&output, 1, 0) <= 0 || (output.revents & POLLERR) == 0) return;
  const int nowhere = ::open("/dev/null", O_WRONLY);
  ::dup2(nowhere, descriptor);
  ::close(nowhere);
}

void OnSignal(int signal) {
  const int error = errno;
  if (signal == SIGPIPE) {
    DropOutput(STDOUT_FILENO);
    DropOutput(STDERR_FILENO);
  }
  const bool stops = signal != SIGPIPE || !output_is_no_stop;
  if (stops && !stop_requested.exchange(true)) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, message.data(), message.size());
  }
  errno = error;
}

}  // namespace

const std::atomic<bool>* StopOnSignals(std::string_view after) {
  message =
      after.empty() ? "" : fmt::format("\nStopping after {}; once more to stop at once.\n", after);
  output_is_no_stop = std::getenv(kOutputIsNoStop) != nullptr;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGPIPE, &action, nullptr);
  action.sa_flags |= static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  if (HangUpIsIgnored()) {
    ::signal(SIGHUP, SIG_IGN);
  } else {
    ::sigaction(SIGHUP, &action, nullptr);
  }
  return &stop_requested;
}

}  // namespace lopt
