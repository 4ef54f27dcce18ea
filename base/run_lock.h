#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "lopt/base/environment.h"
#include "lopt/base/wakeup.h"

namespace lopt {

// Keeps other processes out of an output directory while it lives, those of other hosts that share
// its file system too. It is a file "<directory>/<name>.lock" that names its holder and shows a
// sign of life (its time of change) every 5 s, from a thread of its own.
//
// What it promises:
// - Of processes that ask at the same time one gets it: the file is made by link(2). Only where
//   several machines take over the same lock within one millisecond could two believe so, until
//   RequireHeld tells the one whose lock it is not.
// - Of a holder on this machine it is known whether it still runs. If not, the lock is taken over
//   at once, with a line in the log.
// - A holder on another machine, or in another container, has the lock until it has shown no sign
//   of life for kLockSeconds by the clock of the file system; then it is taken over, with a line.
// - A holder that was silent for longer and still runs can have lost it. RequireHeld tells, and so
//   does RequireNotSilent; one of them is to be called before each write.
// A file system without hard links has no locks: then there is none, and a warning says so.
class RunLock {
 public:
  // Throws Error (who has it, and what can be done) if another process has the lock, or if the file
  // cannot be made.
  explicit RunLock(const std::string& directory, const std::string& name = "run");
  // Removes the file, if it is still this lock's.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Throws Error if another process has taken the lock over, or if that cannot be read.
  void RequireHeld() const;
  // Whether another process is known to have taken it over.
  bool Lost() const;
  // The same, but looks only if the last sign of life is half of kLockSeconds ago; before, nobody
  // can have taken the lock over. So it costs two looks at a clock: one that stands still while the
  // machine sleeps, and that of the date.
  void RequireNotSilent() const;

 private:
  struct Moment {
    double steady = 0;  // seconds
    double date = 0;
  };
  static Moment Now();
  void NoteAlive(const Moment& moment);
  // Since the last sign of life.
  double SilentSeconds(const Moment& now) const;
  void ShowLife();
  void KeepAlive();

  std::string directory_;
  std::string path_;
  std::string holder_;  // what the file says; empty: the file system has no locks
  // Before the last sign of life that this process gave as the holder. The first sign after a long
  // silence does not count: another that had looked before it may be taking the lock over.
  std::atomic<double> alive_steady_ = 0;
  std::atomic<double> alive_date_ = 0;
  bool woke_up_ = false;
  std::atomic<bool> ended_ = false;
  Wakeup wakeup_;
  std::unique_ptr<Environment::Executor> alive_;  // a thread of its own
};

inline constexpr double kLockSeconds = 60;

}  // namespace lopt
