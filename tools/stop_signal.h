#pragma once

#include <atomic>

namespace lopt {

// From now on the first SIGTERM or SIGINT sets the flag that is returned, with a line on standard
// error if `speaks`, and a second one ends the process.
const std::atomic<bool>* StopOnSignals(bool speaks);

}  // namespace lopt
