#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lopt/base/file_system.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// One simulated run of meta-training and what is done to it.
struct ScheduleOptions {
  uint64_t seed = 0;
  bool trace = false;  // keep the course of events as text
  // For tests, which put a bug between a process and the world: what the process of that rank gets
  // instead. Empty: the same.
  std::function<std::unique_ptr<FileSystem>(int rank, FileSystem*)> files = {};
  std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)> transport = {};
  bool keeps_dead_heirs = false;  // of ElasticOptions
};

struct ScheduleResult {
  std::string violation = {};  // which invariant does not hold, and how; empty: all do
  std::string trace = {};
  int64_t attempts = 0;  // how often the job was started
  int64_t deaths = 0;    // attempts that a fault ended
  int64_t steps = 0;     // of the simulation
  double seconds = 0;    // that went by in it
};

// Runs a small job of meta-training, whose ranks, threads, messages, clocks and files are all
// simulated, and starts it again from its directory as often as faults end it. Faults, delays and
// the shape of the job are drawn with the seed. Afterwards, and after each end of the job, the
// invariants are checked that docs/simulate.md lists. The same options give the same result.
ScheduleResult RunSchedule(const ScheduleOptions& options);

}  // namespace lopt
