#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lopt/tools/launch/rank_end.h"

namespace lopt {

// An attempt that has failed.
struct FailedAttempt {
  int64_t attempt = 1;  // counted from 1 in each launch
  int ranks = 1;
  int exit_code = 0;                      // of mpiexec; 128 + the signal that ended it
  std::string reason = {};                // killed, hung, failed, not started, mpiexec killed
  std::vector<RankStatus> culprits = {};  // as far as they are known
  int64_t updates = 0;                    // of theta, in a status file or a checkpoint
  int64_t checkpoint = -1;                // that the next attempt goes on from; -1: none
  bool restarted = false;
  double delay_seconds = 0;  // before the restart
};

// Appends a line to "<out>/restarts.jsonl":
//   {"time": "2026-01-31T12:00:00Z", "attempt": 1, "ranks": 3, "exit_code": 9, "reason": "killed",
//    "culprits": [{"rank": 2, "host": "node7", "last_step": 41}], "updates": 42, "checkpoint": 40,
//    "restarted": true, "delay_seconds": 0}
// Throws Error if that fails.
void AppendRestartLog(const std::string& out_dir, const FailedAttempt& attempt);
// Removes it, if it is there. Throws Error if that fails.
void RemoveRestartLog(const std::string& out_dir);

}  // namespace lopt
