#include "lopt/tools/launch/stop_requests.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>

#include "lopt/base/error.h"
#include "lopt/base/platform.h"
#include "lopt/tools/hang_up.h"

namespace lopt {

namespace {

bool IsPipe(int descriptor) {
  struct stat status = {};
  return ::fstat(descriptor, &status) == 0 && S_ISFIFO(status.st_mode);
}

// Blocks what StopRequests watches; returns a descriptor that is readable while one is pending.
int BlockAndOpen(sigset_t* before) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&signals, signal);
  if (!HangUpIsIgnored()) sigaddset(&signals, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &signals, before);
  return OpenSignals(signals);
}

}  // namespace

StopRequests::StopRequests(bool watch_output)
    : signals_(BlockAndOpen(&before_)), output_is_watched_(watch_output && IsPipe(STDOUT_FILENO)) {
  Require(signals_.number() >= 0, "cannot watch signals: {}", SystemReason(errno));
}

StopRequests::~StopRequests() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

int StopRequests::Count() {
  while (const int signal = NextSignal(signals_.number())) {
    if (signal != SIGCHLD) ++count_;
  }
  pollfd output = {.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  if (output_is_watched_ && ::poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0) {
    output_is_watched_ = false;
    ++count_;
  }
  return count_;
}

void StopRequests::Sleep(double seconds) {
  std::array<pollfd, 2> sources = {
      {{.fd = signals_.number(), .events = POLLIN, .revents = 0},
       {.fd = output_is_watched_ ? STDOUT_FILENO : -1, .events = 0, .revents = 0}}};
  const double milliseconds = std::ceil(std::clamp(seconds, 0.0, 1e6) * 1000);
  ::poll(sources.data(), sources.size(), static_cast<int>(milliseconds));
}

bool StopRequests::Wait(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Count() == 0) {
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    if (left <= 0) return true;
    Sleep(left);
  }
  return false;
}

}  // namespace lopt
