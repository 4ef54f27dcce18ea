#pragma once

#include <vector>

#include "lopt/tools/bench/bench_workload.h"

namespace lopt {

// All workloads, in the order they are run.
std::vector<WorkloadMaker> Workloads(int threads);

// `lopt bench growth`: inner steps of image models under MLPLOpt on all threads, each with one size
// grown: "growth/replicas-<models that train side by side>", "growth/hidden-<hidden units of the
// optimizer>", "growth/image-<side of the images>" of an MLP with 32 hidden units, and
// "growth/conv-<the same>" of an ImageConv.
std::vector<WorkloadMaker> GrowthWorkloads();

}  // namespace lopt
