#include "lopt/tools/stop_signal.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "lopt/base/print.h"
#include "lopt/tools/hang_up.h"

namespace lopt {

namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);
// What the handler says, once StopOnSignals has said it.
std::atomic<const std::string*> message = nullptr;
static_assert(std::atomic<const std::string*>::is_always_lock_free);
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
    if (const std::string* text = message) {
      [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text->data(), text->size());
    }
  }
  errno = error;
}

// The first signal asks for a stop, the second ends the process.
void CatchStops() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  if (HangUpIsIgnored()) {
    ::signal(SIGHUP, SIG_IGN);
  } else {
    ::sigaction(SIGHUP, &action, nullptr);
  }
}

constexpr std::string_view kCommandsThatStop[] = {"meta-train", "train", "eval", "fit", "worker"};

}  // namespace

void CatchEarlySignals(const char* command) {
  if (command == nullptr || std::find(std::begin(kCommandsThatStop), std::end(kCommandsThatStop),
                                      std::string_view(command)) == std::end(kCommandsThatStop)) {
    return;
  }
  CatchStops();
}

const std::atomic<bool>* StopOnSignals(std::string_view after) {
  static std::string text;
  text =
      after.empty() ? "" : fmt::format("\nStopping after {}; once more to stop at once.\n", after);
  output_is_no_stop = std::getenv(kOutputIsNoStop) != nullptr;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGPIPE, &action, nullptr);
  if (stop_requested) {  // the next signal ends the process
    PrintErr("{}", text);
  } else {
    message = &text;
    CatchStops();
  }
  return &stop_requested;
}

}  // namespace lopt
