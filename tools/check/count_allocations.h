#pragma once

#include "lopt/base/check.h"

namespace lopt {

// What the calling thread has taken by `new` so far, in this program and what it has loaded.
checks::Allocations CountAllocations();

}  // namespace lopt
