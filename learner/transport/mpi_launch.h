#pragma once

namespace lopt {

// Whether an MPI launcher started this process (mpiexec, srun): it left its mark in the
// environment.
bool StartedByMpi();

}  // namespace lopt
