#pragma once

#include <string>
#include <thread>
#include <vector>

#include "lopt/learner/train/trainer.h"
#include "lopt/learner/transport/local_transport.h"
#include "tests/error_of.h"

namespace lopt {

// Trains a model on ranks that are threads, which all write to the directory of `options`. Returns
// the errors by rank.
inline std::vector<std::string> TrainOnRanks(const TrainConfig& config, int ranks,
                                             const TrainOptions& options) {
  const auto transports = MakeLocalTransports(ranks);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    threads.emplace_back([&, rank] {
      TrainOptions mine = options;
      mine.transport = transports[rank].get();
      errors[rank] = ErrorOf([&] { RunTraining(config, mine); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace lopt
