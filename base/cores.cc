#include "lopt/base/cores.h"

#include <algorithm>
#include <cstdint>

#include "lopt/base/parallel.h"
#include "lopt/base/platform.h"

namespace lopt {

int AvailableCores() {
  const int64_t cores = AffinityCores();
  return static_cast<int>(
      std::min({cores, ControlGroupCores().value_or(cores), int64_t{kMaxThreads}}));
}

}  // namespace lopt
