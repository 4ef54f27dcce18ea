#include "tools/launch/stop_requests.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/error.h"

namespace lopt {

StopRequests::StopRequests() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, &before_);
  descriptor_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  Require(descriptor_ >= 0, "cannot watch signals: {}", std::generic_category().message(errno));
}

StopRequests::~StopRequests() {
  ::close(descriptor_);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int StopRequests::Count() {
  signalfd_siginfo signal;
  while (::read(descriptor_, &signal, sizeof signal) == sizeof signal) {
    if (signal.ssi_signo != SIGCHLD) ++count_;
  }
  return count_;
}

bool StopRequests::Wait(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Count() == 0) {
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    if (left <= 0) return true;
    pollfd signals = {.fd = descriptor_, .events = POLLIN, .revents = 0};
    ::poll(&signals, 1, static_cast<int>(std::min(left * 1000, 1e6)) + 1);
  }
  return false;
}

}  // namespace lopt
