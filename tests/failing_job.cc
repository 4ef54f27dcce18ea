// A job of ranks that end badly, for tools_mpi_test: failing_job rank|twice.
#include <string_view>

#include "lopt/base/error.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/transport/collectives.h"
#include "lopt/learner/transport/job.h"
#include "tests/learner_runs.h"

int main(int, char** argv) {
  const std::string_view how = argv[1];
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
