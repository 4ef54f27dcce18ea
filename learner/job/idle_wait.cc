#include "lopt/learner/job/idle_wait.h"

#include <algorithm>
#include <cstdint>
#include <thread>

#include "lopt/base/platform.h"
#include "lopt/base/wakeup.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {
namespace {

using std::chrono::microseconds;

constexpr microseconds kSpin{100};
constexpr microseconds kShortestSleep{15};
constexpr microseconds kLongestSleep{1000};

// The system's files are read for it.
int Cores() {
  static const auto cores = [] {
    const int64_t all = std::max(1U, std::thread::hardware_concurrency());
    return static_cast<int>(std::min(all, ControlGroupCores().value_or(all)));
  }();
  return cores;
}

// Looks take time from ranks that work where there are more of them than cores: all together they
// may take about a quarter of the cores.
microseconds ShortestSleep(const Transport& transport) {
  const int crowd = (transport.ranks_on_host() + Cores() - 1) / Cores();
  return transport.rank() == 0 || crowd == 1 ? kShortestSleep : 20 * crowd * microseconds(1);
}

}  // namespace

IdleWait::IdleWait(Transport* transport, Wakeup* wakeup)
    : wakeup_(wakeup),
      woken_by_messages_(transport->NotifyOnArrival(wakeup)),
      spins_(transport->ranks_on_host() <= Cores()),
      shortest_sleep_(ShortestSleep(*transport)),
      idle_since_(SteadyClock::now()) {}

void IdleWait::Wait(SteadyClock::time_point now, const std::function<bool()>& urgent,
                    microseconds longest) {
  if (woken_by_messages_) {
    wakeup_->WaitFor(longest);
  } else if (!urgent()) {
    wakeup_->WaitFor(kLongestSleep);
  } else if (!spins_ || now - idle_since_ > kSpin) {
    // A long wait may end a little late.
    const auto waited = std::chrono::duration_cast<microseconds>(now - idle_since_);
    wakeup_->WaitFor(std::clamp(waited / 16, shortest_sleep_, kLongestSleep));
  }
}

}  // namespace lopt
