#include "lopt/base/error.h"
#include "lopt/learner/transport/mpi_transport.h"

namespace lopt {

std::string MpiLibrary() { return ""; }

std::unique_ptr<Transport> MakeMpiTransport(size_t /*block_bytes*/) {
  Fail(
      "an MPI launcher started this program, but it was built without MPI: build it where MPI is "
      "installed, or start it without a launcher");
}

}  // namespace lopt
