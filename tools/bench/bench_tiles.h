#pragma once

#include <vector>

#include "lopt/tools/bench/bench_workload.h"

namespace lopt {

// `lopt bench tiles`: one layer of MLPLOpt's network for every shape of tile, "tile/<vectors of
// parameters>x<hidden units>/<inputs>", and with its stores paced (base/isa.h), ".../paced".
std::vector<WorkloadMaker> TileWorkloads();

}  // namespace lopt
