#pragma once

#include <atomic>
#include <string_view>

namespace lopt {

// From now on the first SIGTERM, SIGINT or SIGHUP (tools/hang_up.h) sets the flag that is returned,
// and a second one ends the process. So does output that nobody reads any more (SIGPIPE), which
// never ends the process: what is written afterwards goes nowhere. `after` is what still comes to
// its end, "this update"; the first signal says so on standard error unless it is empty.
const std::atomic<bool>* StopOnSignals(std::string_view after);

}  // namespace lopt
