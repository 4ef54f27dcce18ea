#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "lopt/learner/transport/transport.h"

namespace lopt {

// The MPI library that the program was built with: "MPICH 4.0.2"; empty if none.
std::string MpiLibrary();

// Starts MPI and returns the transport of MPI_COMM_WORLD. Once per process, from the thread that
// will use it. Throws Error if MPI fails or the program was built without. Longer messages go in
// blocks of `block_bytes`, which an int must hold: MPI counts no further.
//
// Waiting is polling: MPICH's own waiting calls keep a core busy. At the end MPI_Finalize is called
// only where all ranks are on one host, since over tcp it can hang; elsewhere Exit ends the process
// after the farewell, for which MPICH's mpiexec wants -disable-auto-cleanup.
std::unique_ptr<Transport> MakeMpiTransport(size_t block_bytes = size_t{1} << 30);

}  // namespace lopt
