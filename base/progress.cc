#include "lopt/base/progress.h"

#include <atomic>

namespace lopt {
namespace {

std::atomic<int64_t> noted = 0;

}  // namespace

// Two threads may write the same number: that it changes is enough, and cheaper than a count.
void NoteProgress() {
  noted.store(noted.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

int64_t ProgressNoted() { return noted.load(std::memory_order_relaxed); }

}  // namespace lopt
