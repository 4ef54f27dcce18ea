#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lopt/learner/elastic/connections.h"

namespace lopt {

// What a worker process is told about itself; the rest comes from the learner.
struct ElasticWorkerOptions {
  int threads = 1;                           // at least 1
  std::string version = {};                  // of the program
  std::optional<std::string> data_dir = {};  // in place of the learner's
  std::optional<std::string> device = {};    // in place of the learner's
  std::vector<int> gpus = {};                // as in MetaTrainerOptions
  int place_on_host = 0;                     // of DeviceOfRank
  const std::atomic<bool>* stop = nullptr;   // once true: leave
  std::string token = {};                    // that the learner wants to hear
  // It belongs to one job: told to stop it has the learner stop the job, and it ends with the first
  // learner.
  bool one_job = false;
  // It looks for a learner for so long, at first and whenever one has gone: one that was
  // interrupted or has failed may come back. A connection on which nothing is said ends after this
  // time, or 10 s if that is longer.
  double patience_seconds = 60;
  // Something else ends this process where the learner has gone: its silence means nothing, before
  // its first word neither.
  bool learner_is_watched = false;
};

enum class ElasticWorkerEnd {
  kFinished,     // so is the job
  kInterrupted,  // the job was; or, told to stop, it has left
};

// Works for a learner until the job has finished, whatever process that learner is. `connect` makes
// a connection, number 1, that is open or will close. Throws Error if the learner refuses it, if
// its work fails, or if there is no learner for too long.
ElasticWorkerEnd RunElasticWorker(const ElasticWorkerOptions& options,
                                  const std::function<std::unique_ptr<Connections>()>& connect);

}  // namespace lopt
