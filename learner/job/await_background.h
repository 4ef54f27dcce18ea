#pragma once

#include <functional>

#include "lopt/learner/job/background.h"
#include "lopt/learner/job/message_loop.h"

namespace lopt {

// Has work done in the background while the loop goes on, and returns when it is done. Throws what
// it throws, or what the loop throws, after the work has ended.
void AwaitBackground(Background* background, MessageLoop* loop, const std::function<void()>& work);

}  // namespace lopt
