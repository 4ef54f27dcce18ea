// Preloaded into the program: a signal to stop comes before main begins.

#include <csignal>

namespace {

[[gnu::constructor]] void Stop() { std::raise(SIGTERM); }

}  // namespace
