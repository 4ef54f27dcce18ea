#include "tools/launch/supervisor.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/error.h"
#include "learner/run/checkpoint.h"
#include "learner/run/run_directory.h"
#include "tools/commands.h"
#include "tools/launch/child_process.h"
#include "tools/launch/rank_watch.h"
#include "tools/launch/restart_log.h"
#include "tools/launch/stop_requests.h"

namespace lopt {

namespace {

constexpr double kReadSeconds = 0.5;  // between two looks at the status files

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print(stderr, "lopt launch: {}\n", fmt::format(format, std::forward<Args>(args)...));
}

// The run in the output directory, as far as it is this launch's own.
class OwnRun {
 public:
  OwnRun(const std::string& out_dir, bool resume)
      : directory_(out_dir), resume_(resume), before_(Manifest()) {}

  // A run is there that was resumed or started by this launch, and not one that was there before.
  bool Exists() const {
    const std::optional<Identity> now = Manifest();
    return resume_ || (now && now != before_);
  }
  // Step of its newest checkpoint; -1 if there is none.
  int64_t Checkpoint() const {
    if (!Exists()) return -1;
    const std::vector<int64_t> steps = CheckpointStore(directory_.CheckpointPath(), {}).Steps();
    return steps.empty() ? -1 : steps.back();
  }

 private:
  // Every process that starts a run replaces its manifest by another file.
  using Identity = std::array<int64_t, 4>;
  std::optional<Identity> Manifest() const {
    struct stat file = {};
    if (::stat((directory_.path() + "/manifest.json").c_str(), &file) != 0) return std::nullopt;
    return Identity{static_cast<int64_t>(file.st_ino), file.st_size, file.st_mtim.tv_sec,
                    file.st_mtim.tv_nsec};
  }

  RunDirectory directory_;
  bool resume_;
  std::optional<Identity> before_;
};

// How one run of mpiexec ended.
struct JobEnd {
  ProcessEnd process;
  bool silent = false;  // it was killed since no rank reported
  bool started = false;
  int64_t updates = 0;
  std::string reason = {};  // of a failure, as in restart_log.h
  std::vector<RankStatus> culprits = {};
};

bool IsFatalSignal(int exit_code) {
  // MPICH's mpiexec exits with the signal's number, Open MPI's and shells with 128 more.
  for (const int signal : {SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGTERM}) {
    if (exit_code == signal || exit_code == 128 + signal) return true;
  }
  return false;
}

void FindCulprits(const RankWatch& watch, double worker_timeout_seconds, JobEnd* end) {
  if (end->silent) {
    end->reason = end->started ? "hung" : "not started";
    end->culprits = watch.All();
  } else if (end->process.by_signal) {
    end->reason = "mpiexec killed";
  } else if (const auto behind = watch.Behind(worker_timeout_seconds / 2); !behind.empty()) {
    end->reason = "hung";
    end->culprits = behind;
  } else {
    end->culprits = watch.Ended();
    end->reason = IsFatalSignal(end->process.exit_code) ? "killed"
                  : end->started                        ? "failed"
                                                        : "not started";
  }
}

std::string Describe(const JobEnd& end) {
  if (end.culprits.empty()) {
    return fmt::format("the job ended with exit code {} ({})", end.process.exit_code, end.reason);
  }
  const std::string ranks = DescribeRanks(end.culprits);
  if (end.silent) return fmt::format("no rank reported any more, the job was killed: {}", ranks);
  if (end.reason == "hung") return fmt::format("hung: {}", ranks);
  return fmt::format("{} (exit code {}): {}", end.reason, end.process.exit_code, ranks);
}

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options)
      : options_(options),
        run_(options.out_dir, options.resume),
        policy_(options.restart, run_.Checkpoint()) {
    const bool holds_run = RunDirectory(options.out_dir).HoldsRun();
    Require(!options.resume || holds_run, "cannot resume: {} holds no run", options.out_dir);
    Require(!holds_run || options.resume || options.overwrite,
            "{} holds a run already: resume it (--resume), replace it (--overwrite), or choose "
            "another directory",
            options.out_dir);
    if (options.overwrite) RemoveRestartLog(options.out_dir);
  }

  int Run() {
    for (int64_t attempt = 1;; ++attempt) {
      const int ranks = policy_.ranks();
      const JobEnd end = RunJob(ranks);
      const int code = end.process.exit_code;
      if (code == kExitDone || code == kExitInterrupted) return code;
      if (stop_.Count() > 0) {
        Say("{}; stopped, to be resumed from {}", Describe(end), DescribeCheckpoint());
        return kExitInterrupted;
      }
      if (!CanBeHelped(end)) return code;
      const std::optional<double> delay = Fail(attempt, ranks, end);
      Require(delay.has_value(), "gave up after {} failures in a row without progress: {}",
              options_.restart.max_restarts + 1, Describe(end));
      if (*delay > 0 && !Wait(*delay)) return kExitInterrupted;
    }
  }

 private:
  bool CanBeHelped(const JobEnd& end) const {
    if (end.process.exit_code == kExitUsage) return false;
    return end.started || end.process.exit_code != kExitError ||
           options_.restart.min_ranks < options_.restart.ranks;
  }

  std::string DescribeCheckpoint() const {
    const int64_t checkpoint = run_.Checkpoint();
    return checkpoint < 0 ? "the beginning" : fmt::format("checkpoint {}", checkpoint);
  }

  bool Wait(double seconds) { return options_.wait ? options_.wait(seconds) : stop_.Wait(seconds); }

  // Tells of a failure and returns the delay before the next attempt.
  std::optional<double> Fail(int64_t attempt, int ranks, const JobEnd& end) {
    const int64_t checkpoint = run_.Checkpoint();
    const std::optional<double> delay = policy_.AfterFailure(
        {.started = end.started, .checkpoint = checkpoint, .updates = end.updates});
    Say("{}", Describe(end));
    if (delay) {
      Say("restart {} on {} ranks from {} in {:g} s", attempt, policy_.ranks(),
          DescribeCheckpoint(), *delay);
    }
    AppendRestartLog(options_.out_dir, {.attempt = attempt,
                                        .ranks = ranks,
                                        .exit_code = end.process.exit_code,
                                        .reason = end.reason,
                                        .culprits = end.culprits,
                                        .updates = std::max(end.updates, checkpoint),
                                        .checkpoint = checkpoint,
                                        .restarted = delay.has_value(),
                                        .delay_seconds = delay.value_or(0)});
    return delay;
  }

  std::vector<std::string> CommandLine(int ranks) const {
    std::vector<std::string> words = options_.mpiexec;
    words.insert(words.end(), {"-n", std::to_string(ranks)});
    words.insert(words.end(), options_.program.begin(), options_.program.end());
    if (run_.Exists()) {
      words.emplace_back("--resume");
    } else {
      words.insert(words.end(), options_.start_words.begin(), options_.start_words.end());
    }
    return words;
  }

  JobEnd RunJob(int ranks) {
    RemoveStatusFiles(options_.out_dir);
    RankWatch watch(options_.out_dir, Now());
    JobEnd end;
    {
      ChildProcess mpiexec(CommandLine(ranks));
      Follow(&mpiexec, &watch, &end);
    }
    const std::vector<pid_t> left = reaper_.KillAll();
    Require(left.empty(), "these processes of the job cannot be ended: {}", fmt::join(left, ", "));
    watch.Read(Now());
    end.started = watch.count() > 0;
    end.updates = watch.updates();
    FindCulprits(watch, options_.worker_timeout_seconds, &end);
    return end;
  }

  // Until mpiexec has ended.
  void Follow(ChildProcess* mpiexec, RankWatch* watch, JobEnd* end) {
    const double silence = options_.worker_timeout_seconds + options_.silence_allowance_seconds;
    int stops = 0;
    double next_read = 0;
    for (;;) {
      const double now = Now();
      if (now >= next_read) {
        watch->Read(now);
        next_read = now + kReadSeconds;
      }
      if (now - watch->last_change() > silence && !end->silent) {
        end->silent = true;
        mpiexec->Signal(SIGKILL);
      }
      const int new_stops = stop_.Count();
      if (new_stops > stops) {
        mpiexec->Signal(new_stops == 1 ? SIGTERM : SIGKILL);
        stops = new_stops;
      }
      if (const std::optional<ProcessEnd> process = mpiexec->Poll()) {
        end->process = *process;
        return;
      }
      pollfd signals = {.fd = stop_.descriptor(), .events = POLLIN, .revents = 0};
      ::poll(&signals, 1, static_cast<int>(std::max(next_read - Now(), 0.0) * 1000) + 1);
    }
  }

  const SupervisorOptions& options_;
  OwnRun run_;
  RestartPolicy policy_;
  ProcessReaper reaper_;
  StopRequests stop_;
};

}  // namespace

int Supervise(const SupervisorOptions& options) { return Supervisor(options).Run(); }

}  // namespace lopt
