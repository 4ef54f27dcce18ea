#pragma once

#include <memory>
#include <vector>

#include "lopt/learner/transport/transport.h"

namespace lopt {

// The ranks of a job inside one process: element r of the result is rank r's, for a thread of its
// own. One rank is the usual case of a job without MPI. Abort ends the process.
std::vector<std::unique_ptr<Transport>> MakeLocalTransports(int size);

}  // namespace lopt
