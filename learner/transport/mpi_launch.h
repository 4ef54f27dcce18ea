#pragma once

#include <string>

namespace lopt {

// Whether an MPI launcher started this process (mpiexec, srun): it left its mark in the
// environment.
bool StartedByMpi();

// Throws Error if a launcher started more or fewer processes than the `size` of this one's job, as
// another MPI's mpiexec does, and srun without MPI: each would make a run of its own. `library`
// names the MPI that sees that size, empty for none.
void CheckLauncher(int size, const std::string& library);

// Throws Error if a launcher such as torchrun says that there are more processes (RANK,
// WORLD_SIZE), which `option` would join to one job.
void CheckWorldSize(const std::string& option);

}  // namespace lopt
