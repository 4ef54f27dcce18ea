#pragma once

#include <atomic>
#include <string_view>

namespace lopt {

// Set for ranks whose output is read by mpiexec's processes: these may be killed, and it is not
// they who ask for a stop.
inline constexpr const char* kOutputIsNoStop = "LOPT_OUTPUT_IS_NO_STOP";

// From now on the first SIGTERM, SIGINT or SIGHUP (tools/hang_up.h) sets the flag that is returned,
// and a second one ends the process. So does output that nobody reads any more (SIGPIPE), which
// never ends the process: what is written afterwards goes nowhere. `after` is what still comes to
// its end, "this update"; the first signal says so on standard error unless it is empty. Where
// kOutputIsNoStop is in the environment, output that nobody reads goes nowhere and is no stop.
const std::atomic<bool>* StopOnSignals(std::string_view after);

// Takes signals that come before StopOnSignals is called: they set its flag. For a program's first
// instructions, where no library has begun; `command` is the first word of its command line,
// nullptr for none. Does nothing for commands that do not call StopOnSignals.
void CatchEarlySignals(const char* command);

}  // namespace lopt
