#include "lopt/learner/transport/mpi_launch.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace lopt {

bool StartedByMpi() {
  // Hydra and Slurm's pmi2; PMIx (Open MPI 4 and later, Slurm's pmix); Open MPI.
  static constexpr const char* kMarks[] = {"PMI_RANK", "PMI_FD", "PMIX_RANK",
                                           "OMPI_COMM_WORLD_SIZE"};
  return std::any_of(std::begin(kMarks), std::end(kMarks),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

}  // namespace lopt
