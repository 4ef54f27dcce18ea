#include "lopt/tools/launch/supervisor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/platform.h"
#include "lopt/base/print.h"
#include "lopt/base/run_lock.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/launch/child_process.h"
#include "lopt/tools/launch/rank_watch.h"
#include "lopt/tools/launch/restart_log.h"
#include "lopt/tools/launch/stop_requests.h"

namespace lopt {

namespace {

constexpr double kReadSeconds = 0.5;  // between two looks at the status files
constexpr double kGraceSeconds = 1;   // for mpiexec to end after a rank has
constexpr double kRepeatSeconds = 1;  // between two signals to stop
// For a job to end that is told to stop before its learner has reported: there is nothing to save,
// and MPICH's process manager can hang when a signal comes while it starts its ranks.
constexpr double kStartStopSeconds = 5;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  PrintErr("lopt launch: {}\n", fmt::format(format, std::forward<Args>(args)...));
}

// The run in the output directory, as far as it is this launch's own.
class OwnRun {
 public:
  OwnRun(const std::string& out_dir, bool resume)
      : directory_(out_dir), resume_(resume), before_(Manifest()) {}

  // A run is there that was resumed or started by this launch, and not one that was there before.
  bool Exists() const { return resume_ || ManifestIsOwn(); }
  // What its manifest says; empty if none of this launch's ranks has written one, or if it cannot
  // be read, which ends no launch: the next attempt replaces it.
  std::string Status() const {
    if (!ManifestIsOwn()) return "";
    try {
      return directory_.ReadManifest().status;
    } catch (const Error& error) {
      Say("{}", error.what());
      return "";
    }
  }
  // Step of its newest checkpoint; -1 if there is none.
  int64_t Checkpoint() const {
    if (!Exists()) return -1;
    const std::vector<int64_t> steps = CheckpointStore(directory_.CheckpointPath(), {}).Steps();
    return steps.empty() ? -1 : steps.back();
  }

  // Every process that starts or resumes a run replaces its manifest by another file.
  bool ManifestIsOwn() const {
    const std::optional<Identity> now = Manifest();
    return now && now != before_;
  }

 private:
  using Identity = std::array<int64_t, 4>;
  std::optional<Identity> Manifest() const {
    // Opened, so that a network file system asks its server.
    const int descriptor =
        ::open(directory_.ManifestPath().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat file = {};
    const bool there = ::fstat(descriptor, &file) == 0;
    ::close(descriptor);
    if (!there) return std::nullopt;
    const timespec changed = ModifiedAt(file);
    return Identity{static_cast<int64_t>(file.st_ino), file.st_size, changed.tv_sec,
                    changed.tv_nsec};
  }

  RunDirectory directory_;
  bool resume_;
  std::optional<Identity> before_;
};

// How one run of mpiexec ended.
struct JobEnd {
  ProcessEnd process;
  bool silent = false;  // it was killed since no rank reported
  bool cut = false;     // it was killed since a rank had ended
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
  } else if (end->process.by_signal && !end->cut) {
    end->reason = "mpiexec killed";
  } else if (const auto ends = watch.Ends(); !ends.empty() && ends[0].end.by_signal) {
    end->reason = "killed";
    end->culprits = watch.Ended();
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
  if (end.silent && !end.started) return "the learner has not reported in time, the job was killed";
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
        lock_(LockDirectory(options)),
        run_(options.out_dir, options.resume),
        policy_(options.restart, options.from.value_or(run_.Checkpoint())) {
    if (options.overwrite) RemoveRestartLog(options.out_dir);
  }

  int Run() {
    for (int64_t attempt = 1;; ++attempt) {
      if (stop_.Count() > 0) return Stopped("no job runs");
      const int ranks = policy_.ranks();
      const JobEnd end = RunJob(ranks);
      went_back_ = went_back_ || end.started;
      const int code = end.process.exit_code;
      const std::string status = run_.Status();
      if (status == "finished") return kExitDone;
      if (status == "interrupted" || code == kExitInterrupted) return kExitInterrupted;
      if (stop_.Count() > 0) return Stopped(Describe(end));
      Require(!MadeNoRun(end),
              "the job ended with exit code 0 and without a run in {}, and would do so again; what "
              "was launched: {}",
              options_.out_dir, fmt::join(options_.program, " "));
      if (!CanBeHelped(end)) return code;
      const std::optional<double> delay = Fail(attempt, ranks, end);
      Require(delay.has_value(), "gave up after {} failures in a row without progress: {}",
              options_.restart.max_restarts + 1, Describe(end));
      if (*delay > 0) Wait(*delay);
    }
  }

 private:
  // Makes the directory. Throws Error if it is not for this launch.
  static std::unique_ptr<RunLock> LockDirectory(const SupervisorOptions& options) {
    const RunDirectory directory(options.out_dir, RunKind::kMetaTraining);
    Require(!options.resume || directory.HoldsRun(), "cannot resume: {} holds no run",
            options.out_dir);
    if (options.resume || options.overwrite) directory.RequireNoOther();
    directory.Create();
    auto lock = std::make_unique<RunLock>(options.out_dir, "launch");
    const RunLock no_rank_runs(options.out_dir);
    if (!options.resume && !options.overwrite) directory.RequireNoRun();
    return lock;
  }

  int Stopped(const std::string& how) const {
    Say("{}; stopped, to be resumed from {}", how, DescribeCheckpoint());
    return kExitInterrupted;
  }

  // All ranks say that they have done what they were told, and that was not to meta-train.
  bool MadeNoRun(const JobEnd& end) const {
    return end.process.exit_code == kExitDone && !end.started && !end.silent &&
           end.culprits.empty() && !run_.ManifestIsOwn();
  }

  bool CanBeHelped(const JobEnd& end) const {
    if (end.process.exit_code == kExitUsage) return false;
    return end.started || end.process.exit_code != kExitError ||
           options_.restart.min_ranks < options_.restart.ranks;
  }

  // Whether the next attempt is to give up what was made after options_.from. One that dies in the
  // middle of that leaves later checkpoints, from which none is to go on.
  bool GoesBack() const { return options_.from && !went_back_; }

  // Step of the checkpoint that the next attempt goes on from; -1: none.
  int64_t Checkpoint() const { return GoesBack() ? *options_.from : run_.Checkpoint(); }

  std::string DescribeCheckpoint() const {
    const int64_t checkpoint = Checkpoint();
    if (checkpoint < 0) return "the beginning";
    return fmt::format("checkpoint {}{}", checkpoint, GoesBack() ? " (--from)" : "");
  }

  // Ends early when a stop is asked for.
  void Wait(double seconds) {
    if (options_.wait) {
      options_.wait(seconds);
    } else {
      stop_.Wait(seconds);
    }
  }

  // Tells of a failure and returns the delay before the next attempt.
  std::optional<double> Fail(int64_t attempt, int ranks, const JobEnd& end) {
    const int64_t checkpoint = Checkpoint();
    const std::optional<double> delay = policy_.AfterFailure(
        {.started = end.started, .checkpoint = checkpoint, .updates = end.updates});
    Say("{}", Describe(end));
    if (delay) {
      Say("restart {} on {} ranks from {} in {:g} s", attempt, policy_.ranks(),
          DescribeCheckpoint(), *delay);
    }
    Log({.attempt = attempt,
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

  // A full disk is no reason to end the launch.
  void Log(const FailedAttempt& attempt) {
    try {
      AppendRestartLog(options_.out_dir, attempt);
    } catch (const Error& error) {
      if (!log_failed_) Say("{}; the launch goes on without", error.what());
      log_failed_ = true;
    }
  }

  std::vector<std::string> CommandLine(int ranks) const {
    std::vector<std::string> words = options_.mpiexec;
    words.insert(words.end(), {"-n", std::to_string(ranks)});
    words.insert(words.end(), options_.program.begin(), options_.program.end());
    if (run_.Exists()) {
      words.emplace_back("--resume");
      if (GoesBack()) {
        words.insert(words.end(), {"--from", std::to_string(*options_.from)});
      }
    } else if (options_.overwrite) {
      words.emplace_back("--overwrite");
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
    if (end.cut && !watch.Ends().empty()) end.process = watch.Ends()[0].end;
    end.started = watch.started();
    end.updates = watch.updates();
    FindCulprits(watch, options_.worker_timeout_seconds, &end);
    return end;
  }

  // Until mpiexec has ended.
  void Follow(ChildProcess* mpiexec, RankWatch* watch, JobEnd* end) {
    const double silence = options_.worker_timeout_seconds + options_.silence_allowance_seconds;
    const double start = Now();
    double next_read = 0;
    double next_signal = 0;
    double stop_ends = std::numeric_limits<double>::infinity();
    double grace_ends = std::numeric_limits<double>::infinity();
    for (;;) {
      const double now = Now();
      if (now >= next_read) {
        watch->Read(now);
        next_read = now + kReadSeconds;
        if (watch->AnyEnded()) grace_ends = std::min(grace_ends, now + kGraceSeconds);
      }
      const int stops = stop_.Count();
      end->silent =
          end->silent || (watch->started() ? now - watch->last_change() > silence
                                           : now - start > options_.start_timeout_seconds);
      if (now >= grace_ends) end->cut = true;
      if (stops > 0) stop_ends = std::min(stop_ends, now + kStartStopSeconds);
      if (end->silent || end->cut || stops > 1 || (now >= stop_ends && !watch->started())) {
        mpiexec->Signal(SIGKILL);
      } else if (stops == 1 && now >= next_signal) {
        mpiexec->Signal(SIGTERM);
        next_signal = now + kRepeatSeconds;
      }
      if (const std::optional<ProcessEnd> process = mpiexec->Poll()) {
        end->process = *process;
        return;
      }
      stop_.Sleep(next_read - Now());
    }
  }

  const SupervisorOptions& options_;
  StopRequests stop_{/*watch_output=*/true};  // the first, so that none is missed
  std::unique_ptr<RunLock> lock_;
  OwnRun run_;
  RestartPolicy policy_;
  ProcessReaper reaper_;
  bool went_back_ = false;   // a learner has reported, which it does after it has gone back
  bool log_failed_ = false;  // restarts.jsonl could not be written, and that has been said
};

}  // namespace

int Supervise(const SupervisorOptions& options) { return Supervisor(options).Run(); }

}  // namespace lopt
