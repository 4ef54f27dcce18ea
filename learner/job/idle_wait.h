#pragma once

#include <chrono>
#include <functional>

#include "lopt/base/environment.h"

namespace lopt {

class Transport;
class Wakeup;

// How a thread of a rank waits between two looks at its messages. Where nothing wakes it, it looks
// all the time at first, if it has a core for it, then sleeps.
class IdleWait {
 public:
  // Arriving messages notify `wakeup` where they can.
  IdleWait(Transport* transport, Wakeup* wakeup);

  // The last look found something.
  void Restart(SteadyClock::time_point now) { idle_since_ = now; }
  // It found nothing. `urgent` is whether a message is waited for that holds up work; otherwise
  // messages are looked for once a millisecond. `longest`: the longest sleep where messages wake.
  void Wait(SteadyClock::time_point now, const std::function<bool()>& urgent,
            std::chrono::microseconds longest);

 private:
  Wakeup* wakeup_;
  bool woken_by_messages_;
  bool spins_;
  std::chrono::microseconds shortest_sleep_;
  SteadyClock::time_point idle_since_;
};

}  // namespace lopt
