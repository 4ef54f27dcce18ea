#pragma once

#include <string>

namespace lopt {

// What a launcher such as torchrun tells each process of a job.
struct Rendezvous {
  int rank = 0;
  int world_size = 1;
  int processes_on_host = 1;
  int place_on_host = 0;     // among them, from 0 on
  std::string address = {};  // "host:port", where rank 0 listens
};

// Reads it for --init-method: "env://" takes the address from the environment (MASTER_ADDR,
// MASTER_PORT; the next port where torchrun itself listens there), "tcp://HOST:PORT" names it. RANK
// and WORLD_SIZE come from the environment, and so do LOCAL_WORLD_SIZE and LOCAL_RANK, where they
// are set. Throws UsageError that names what is missing or wrong.
Rendezvous ReadRendezvous(const std::string& method);

}  // namespace lopt
