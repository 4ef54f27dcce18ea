#pragma once

#include <csignal>

#include "lopt/base/descriptor.h"

namespace lopt {

// While it lives, SIGTERM, SIGINT, SIGHUP (tools/hang_up.h) and SIGCHLD do not interrupt this
// thread but wake Sleep. A signal that this thread had blocked and that has come before counts.
class StopRequests {
 public:
  // `watch_output`: whether Count looks at standard output. Throws Error if the system has no
  // descriptor left.
  explicit StopRequests(bool watch_output);
  ~StopRequests();
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;

  // How often a stop was asked for since the construction: by a signal, or since standard output,
  // if it is watched, is a pipe that nobody reads any more.
  int Count();
  // Returns when something has come, also a child's end, but after so many seconds at the latest.
  void Sleep(double seconds);
  // Sleeps; returns false, without delay, once a stop was asked for.
  bool Wait(double seconds);

 private:
  sigset_t before_ = {};
  Descriptor signals_;              // readable: one has come
  bool output_is_watched_ = false;  // a pipe which is read
  int count_ = 0;
};

}  // namespace lopt
