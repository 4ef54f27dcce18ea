#pragma once

#include <functional>

#include "lopt/learner/transport/transport.h"

namespace lopt {

// Gives `take` all messages that arrive until `done`, asked after each look. What `take` throws
// goes through.
void TakeMessagesUntil(Transport* transport, const std::function<void(const Message&)>& take,
                       const std::function<bool()>& done);

// Waits until all that this rank has said is there, unless it has done so before. Messages that
// arrive meanwhile are lost.
void SayFarewell(Transport* transport);

}  // namespace lopt
