#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lopt/learner/transport/transport.h"

namespace lopt {

struct ElasticOptions {
  // A rank sends its states after so many updates, so that another process can go on from there.
  int64_t snapshot_updates = 8;
  std::string token = {};  // that workers are to say
  // Connections that the job waits for before it begins.
  int64_t wait_for = 0;
  // The job ends with an Error where it has waited so long for workers, of which none or not enough
  // came; 0: it waits for ever.
  double wait_seconds = 0;
  // Whether a worker that is told to stop stops the job.
  bool workers_stop = false;
  // Told to stop while nobody is there to finish the update, the job ends with StoppedAlone. Null:
  // it waits.
  const std::atomic<bool>* stop = nullptr;
  std::function<std::chrono::steady_clock::time_point()> now = [] {
    return std::chrono::steady_clock::now();
  };
  // A bug that tests of the simulator put in: a rank goes to the process that was to get it, also
  // if that has gone meanwhile.
  bool keeps_dead_heirs = false;
};

}  // namespace lopt
