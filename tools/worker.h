#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>

#include "lopt/tools/network_options.h"

namespace lopt {

// Works for the learner at the address, on so many threads, as the options --data-dir, --device and
// --devices say where they are given. `one_job`, `patience_seconds` and `place_on_host`: of
// ElasticWorkerOptions. Returns the exit code.
int RunWorker(const boost::program_options::variables_map& values, const NetworkOptions& network,
              int threads, bool one_job, double patience_seconds, int place_on_host = 0);

}  // namespace lopt
