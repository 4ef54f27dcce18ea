#pragma once

#include <vector>

#include "lopt/tools/bench/bench_workload.h"

namespace lopt {

// All workloads, in the order they are run.
std::vector<WorkloadMaker> Workloads(int threads);

// `lopt bench growth`: inner steps of image models under MLPLOpt on all threads, with one size
// grown at a time: "growth/hidden-<hidden units of the optimizer>", "growth/image-<side of the
// images>" of an MLP with 32 hidden units, "growth/conv-<the same>" of an ImageConv, and
// "growth/replicas-<models that train side by side>", which is 16 in the others.
std::vector<WorkloadMaker> GrowthWorkloads();

}  // namespace lopt
