#pragma once

#include <csignal>

namespace lopt {

// While it lives, SIGTERM, SIGINT, SIGHUP and SIGCHLD do not interrupt this thread but make a
// descriptor readable.
class StopRequests {
 public:
  // Throws Error if the system has no descriptor left.
  StopRequests();
  ~StopRequests();
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;

  int descriptor() const { return descriptor_; }
  // Takes what has come. Returns how many signals to stop have come since the construction.
  int Count();
  // Sleeps; returns false, without delay, once a signal to stop has come.
  bool Wait(double seconds);

 private:
  sigset_t before_ = {};
  int descriptor_ = -1;
  int count_ = 0;
};

}  // namespace lopt
