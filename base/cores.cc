#include "lopt/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lopt/base/parallel.h"
#include "lopt/base/platform.h"

namespace lopt {

int AvailableCores() {
  const int64_t cores = AffinityCores();
  return static_cast<int>(
      std::min({cores, ControlGroupCores().value_or(cores), int64_t{kMaxThreads}}));
}

int AffinityCores() {
  constexpr size_t kMostSets = 1024;  // a million cores
  // The system refuses a set that is too small for all cores that the machine could have.
  for (size_t sets = 1; sets <= kMostSets; sets *= 2) {
    std::vector<cpu_set_t> cores(sets);
    const size_t bytes = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, cores.data()) == 0) {
      return CPU_COUNT_S(bytes, cores.data());
    }
    if (errno != EINVAL) break;
  }
  return 1;
}

}  // namespace lopt
