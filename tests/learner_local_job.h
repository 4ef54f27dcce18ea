#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/transport/local_transport.h"

namespace lopt {

// How a job of several ranks in one process ended.
struct LocalJob {
  MetaTrainResult result;           // rank 0's
  std::vector<std::string> errors;  // by rank; empty: none
};

// Runs the config on `ranks` ranks, each in a thread of its own, with rank r's options from
// options(r); their transports are set here.
inline LocalJob RunLocalJob(const MetaTrainConfig& config, int ranks,
                            const std::function<MetaTrainerOptions(int)>& options) {
  const auto transports = MakeLocalTransports(ranks);
  LocalJob job;
  job.errors.resize(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      MetaTrainerOptions mine = options(rank);
      mine.transport = transports[static_cast<size_t>(rank)].get();
      try {
        MetaTrainResult result = RunMetaTraining(config, mine);
        if (rank == 0) job.result = std::move(result);
      } catch (const std::exception& error) {
        job.errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return job;
}

inline LocalJob RunLocalJob(const MetaTrainConfig& config, int ranks,
                            const MetaTrainerOptions& options = {}) {
  return RunLocalJob(config, ranks, [&](int) { return options; });
}

}  // namespace lopt
