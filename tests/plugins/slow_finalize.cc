// Preloaded into a job of MPI: rank 1 comes to MPI_Finalize six seconds late, as on a machine that
// is busy with other work.

#include <unistd.h>

#include <cstdlib>
#include <cstring>

extern "C" {

int PMPI_Finalize();

int MPI_Finalize() {
  const char* rank = std::getenv("PMI_RANK");
  if (rank && std::strcmp(rank, "1") == 0) ::sleep(6);
  return PMPI_Finalize();
}

}  // extern "C"
