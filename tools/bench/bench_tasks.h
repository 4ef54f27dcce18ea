#pragma once

#include <vector>

#include "lopt/tools/bench/bench_workload.h"

namespace lopt {

// Loss and gradient of every task of the evaluation preset `tasks`, "task/<name>": of one replica
// where a family takes one at a time, else of 16 together. Those that need the torch module are
// skipped where it is missing.
std::vector<WorkloadMaker> TaskWorkloads();

}  // namespace lopt
