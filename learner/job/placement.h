#pragma once

#include <cstdint>

#include "lopt/learner/worker.h"

namespace lopt {

// The logical workers that a rank computes: contiguous blocks, as equal as can be, the larger ones
// first, on all ranks or, if rank 0 is the learner only, on all others.
inline WorkerBlock WorkersOfRank(int64_t workers, int rank, int ranks, bool learner_only) {
  const int64_t working = learner_only ? ranks - 1 : ranks;
  const int64_t place = learner_only ? rank - 1 : rank;
  if (place < 0) {
    return {};
  }
  const int64_t size = workers / working;
  const int64_t larger = workers % working;
  return {.first = place * size + (place < larger ? place : larger),
          .count = size + (place < larger ? 1 : 0)};
}

}  // namespace lopt
