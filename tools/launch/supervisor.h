#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lopt/tools/launch/restart_policy.h"

namespace lopt {

struct SupervisorOptions {
  std::vector<std::string> mpiexec = {"mpiexec"};  // program and its own options
  // What a rank runs, and the words for every attempt. Those that start a run may get --overwrite,
  // the others --resume.
  std::vector<std::string> program = {};
  std::string out_dir = {};
  bool resume = false;  // the first attempt goes on with the run in out_dir
  // With resume: the checkpoint that attempts go on from, until the learner of one has reported;
  // later ones go on from the newest.
  std::optional<int64_t> from = {};
  bool overwrite = false;  // attempts that start a run replace it; restarts.jsonl begins anew
  RestartOptions restart = {};
  // A rank whose reports ended half of worker_timeout before the others' counts as hung. A job
  // whose learner has not reported is killed after start_timeout: mpiexec starts its ranks in this
  // time, and they load the program, data and a checkpoint. From the learner's first report on it
  // is killed when no rank reports for worker_timeout + silence_allowance.
  double start_timeout_seconds = 300;
  double worker_timeout_seconds = 60;
  double silence_allowance_seconds = 5;
  // Replaces the wait before a restart.
  std::function<void(double seconds)> wait = {};
};

// Runs `mpiexec -n <ranks> <program>` until the run's manifest says that it has finished, and
// starts it again, with --resume, when it ends otherwise; restart_policy.h says when. Once a rank
// has ended badly mpiexec is given a second to end and is then killed. Messages go to standard
// error, a line per failure that names rank, host and last step to `<out_dir>/restarts.jsonl` too;
// if that cannot be written, a message says so once.
//
// Returns
// - kExitDone if the manifest says "finished", whatever mpiexec's exit code is;
// - kExitInterrupted if it says "interrupted", if mpiexec's code does, or if a stop was asked for
//   (stop_requests.h), at whatever moment: the job gets SIGTERM, again every second until it has
//   ended; a second stop kills the job, as does 5 s without an end before the learner has reported;
// - the code of a command that no restart can help: one that exits with kExitUsage, or with
//   kExitError before the learner has reported, unless fewer ranks may be tried.
// Throws Error when it gives up, when a job ends with exit code 0 and has neither written a
// manifest nor reported, when out_dir holds a run and neither resume nor overwrite is set, when it
// holds none and resume is, if another process runs in it (a supervisor: launch.lock, or a rank 0:
// run.lock), or if mpiexec cannot be run. Nothing that it started is left when it returns, throws
// or is killed.
//
// To be called from a thread that lives as long as the process. Blocks the three signals in this
// thread while it runs; other threads must not take them.
int Supervise(const SupervisorOptions& options);

}  // namespace lopt
