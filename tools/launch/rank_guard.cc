#include "lopt/tools/launch/rank_guard.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>

#include "lopt/base/platform.h"
#include "lopt/base/print.h"
#include "lopt/base/process_identity.h"
#include "lopt/learner/run/status_file.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/launch/child_process.h"
#include "lopt/tools/launch/rank_end.h"
#include "lopt/tools/launch/stop_requests.h"
#include "lopt/tools/own_command.h"
#include "lopt/tools/stop_signal.h"

namespace lopt {

namespace {

// The rank that mpiexec gave this process; 0 if it did not.
int RankInEnvironment() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  }
  return 0;
}

// `stopped`: whether it was told to stop.
ProcessEnd RunToEnd(const std::vector<std::string>& program, bool* stopped) {
  // Whoever reads the output is mpiexec's process on this host: when it is killed this process is
  // too, and the rank must not take that for a stop before.
  StopRequests stop(/*watch_output=*/false);
  ::setenv(kOutputIsNoStop, "1", 1);
  ChildProcess rank(program);
  for (;;) {
    if (const int stops = stop.Count(); stops > 0 && !*stopped) {
      *stopped = true;
      rank.Signal(SIGTERM);
    }
    if (const std::optional<ProcessEnd> end = rank.Poll()) return *end;
    stop.Sleep(1);
  }
}

// Without a second core file.
void DieOf(int signal) {
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

std::vector<std::string> GuardedProgram(const std::string& out_dir,
                                        const std::vector<std::string>& command) {
  std::vector<std::string> words = OwnCommand();
  for (const char* word : {"launch", "--guard"}) words.emplace_back(word);
  words.push_back(out_dir);
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

int GuardRank(const std::string& out_dir, const std::vector<std::string>& program) {
  DieWithParent();
  ::signal(SIGUSR1, SIG_IGN);  // MPICH's note that another rank has ended
  bool stopped = false;
  const ProcessEnd end = RunToEnd(program, &stopped);
  if (end.exit_code == kExitDone || end.exit_code == kExitInterrupted) return end.exit_code;
  try {
    WriteRankEnd(out_dir,
                 {.rank = RankInEnvironment(), .host = HostName(), .end = end, .stopped = stopped});
  } catch (const std::exception& error) {
    PrintErr("lopt launch: {}\n", error.what());
  }
  if (end.by_signal) DieOf(end.exit_code - 128);
  return end.exit_code;
}

}  // namespace lopt
