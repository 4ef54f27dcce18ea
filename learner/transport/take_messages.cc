#include "lopt/learner/transport/take_messages.h"

#include <chrono>
#include <optional>

#include "lopt/base/environment.h"
#include "lopt/base/wakeup.h"
#include "lopt/learner/job/idle_wait.h"

namespace lopt {
namespace {

// Between two looks where messages wake.
constexpr std::chrono::milliseconds kLongestWait{20};

struct WokenByMessages {
  explicit WokenByMessages(Transport* of) : transport(of) {}
  ~WokenByMessages() { transport->NotifyOnArrival(nullptr); }
  WokenByMessages(const WokenByMessages&) = delete;
  WokenByMessages& operator=(const WokenByMessages&) = delete;

  Transport* transport;
  Wakeup wakeup = {};
};

}  // namespace

void TakeMessagesUntil(Transport* transport, const std::function<void(const Message&)>& take,
                       const std::function<bool()>& done) {
  WokenByMessages woken(transport);
  IdleWait wait(transport, &woken.wakeup);
  while (!done()) {
    bool active = false;
    while (const std::optional<Message> message = transport->Poll()) {
      active = true;
      take(*message);
    }
    const SteadyClock::time_point now = SteadyClock::now();
    if (active) {
      wait.Restart(now);
    } else {
      wait.Wait(
          now, [] { return true; }, kLongestWait);
    }
  }
}

void SayFarewell(Transport* transport) {
  if (transport->FarewellDone()) return;
  transport->BeginFarewell();
  TakeMessagesUntil(
      transport, [](const Message&) {}, [&] { return transport->FarewellDone(); });
}

}  // namespace lopt
