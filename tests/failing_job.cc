// A job of ranks that end badly, or send long messages, for tools_mpi_test: failing_job
// rank|twice|long.
#include <cstddef>
#include <string_view>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/transport/collectives.h"
#include "lopt/learner/transport/job.h"
#include "lopt/learner/transport/mpi_transport.h"
#include "lopt/learner/transport/take_messages.h"
#include "tests/learner_runs.h"

namespace {

// Every rank gathers messages of one block, of less and of more, whole or not. Returns whether all
// came as they were sent.
bool GatherLong(lopt::Transport* ranks, size_t block) {
  lopt::Collectives collectives(ranks);
  bool same = true;
  for (const size_t size : {size_t{0}, block - 1, block, block + 1, 3 * block, 7 * block + 5}) {
    const auto bytes_of = [&](int rank) {
      std::vector<std::byte> bytes(size + static_cast<size_t>(rank));
      for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(i * 31 + static_cast<size_t>(rank));
      }
      return bytes;
    };
    const auto gathered =
        collectives.Await(collectives.AllGather(lopt::AllRanks(*ranks), bytes_of(ranks->rank())));
    for (int rank = 0; rank < ranks->size(); ++rank) {
      same = same && gathered[static_cast<size_t>(rank)] == bytes_of(rank);
    }
  }
  return same;
}

}  // namespace

int main(int, char** argv) {
  const std::string_view how = argv[1];
  if (how == "long") {
    constexpr size_t kBlock = 1000;
    const auto ranks = lopt::MakeMpiTransport(kBlock);
    const bool same = GatherLong(ranks.get(), kBlock);
    lopt::SayFarewell(ranks.get());
    return ranks->Exit(same ? 0 : 1);
  }
  return lopt::RunJob([&](lopt::Transport* ranks) {
    if (how == "twice") {
      for (int run = 0; run < 2; ++run) {
        lopt::RunMetaTraining(lopt::SmallExperiment(2, 2), {.transport = ranks});
      }
      return 0;
    }
    lopt::Require(ranks->rank() != 1, "it is broken");
    lopt::Collectives collectives(ranks);
    collectives.Await(collectives.AllGather(lopt::AllRanks(*ranks), {}));
    return 0;
  });
}
