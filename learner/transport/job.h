#pragma once

#include <functional>

#include "lopt/learner/transport/transport.h"

namespace lopt {

// Runs `work` as a rank of the job that the program was started as: under an MPI launcher (mpiexec,
// srun) one of its ranks, elsewhere rank 0 of 1. To be called last in main, since on several hosts
// it ends the process once the work of all ranks is done. Returns the program's exit code, which is
// what `work` returns.
//
// What `work` throws is printed and ends all ranks with exit code 1; so does a launcher of another
// MPI than the one that lopt was built with. Throws Error if it was built without one and a
// launcher has started it.
int RunJob(const std::function<int(Transport*)>& work);

}  // namespace lopt
