#pragma once

#include <vector>

#include "lopt/tools/bench/bench_workload.h"

namespace lopt {

// All workloads, in the order they are run.
std::vector<WorkloadMaker> Workloads(int threads);

}  // namespace lopt
