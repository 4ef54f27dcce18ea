#include "lopt/base/run_lock.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <exception>
#include <optional>
#include <span>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/output_directory.h"
#include "lopt/base/process_identity.h"
#include "lopt/base/record.h"

namespace lopt {
namespace {

constexpr std::chrono::seconds kSignOfLife(5);
// Of a holder, after which it looks whether it still has the lock.
constexpr double kLongSilence = kLockSeconds / 2;

struct LockFile {
  std::string text;
  double changed = 0;  // by the clock of the file system
};

FileSystem& LockFiles() { return Environment::Current().files(); }

// none if there is no such file.
std::optional<LockFile> ReadLock(const std::string& path) {
  LockFile lock;
  try {
    lock.text = ReadTextFile(path);
  } catch (const Error&) {
    Require(!Exists(path), "cannot read the lock {}", path);
    return std::nullopt;
  }
  FileStatus status;
  if (LockFiles().Look(path, &status) != 0) return std::nullopt;
  lock.changed = status.changed;
  return lock;
}

bool HasNoLinks(int error) { return error == EPERM || error == EOPNOTSUPP || error == ENOSYS; }

// A name beside the lock that no other process uses.
std::string OwnName(const std::string& path) {
  Environment& environment = Environment::Current();
  return fmt::format("{}.tmp.{}.{}.{}", path, environment.HostName(), environment.ProcessId(),
                     environment.UniqueNumber());
}

struct Attempt {
  int error = 0;       // 0: the lock is ours
  double now = 0;      // by the clock of the file system
  bool swept = false;  // who has got the lock has removed our file: there is no more to know
};

Attempt TryToMake(const std::string& path, const std::string& text) {
  const std::string own = OwnName(path);
  {
    OpenFile file(own, OpenFor::kMake, "cannot write");
    int error = file.Write(std::as_bytes(std::span(text)));
    if (error == 0) error = file.Close();
    if (error != 0) {
      LockFiles().Remove(own);
      Fail("cannot write {}: {}", own, SystemReason(error));
    }
  }
  Attempt attempt;
  attempt.error = -LockFiles().Link(own, path);
  FileStatus status;
  const int looked = -LockFiles().Look(own, &status);
  if (looked == 0) {
    attempt.now = status.changed;
    // A network file system may have lost the answer and not the link.
    if (status.links == 2) attempt.error = 0;
  }
  attempt.swept = attempt.error != 0 && looked == ENOENT;
  LockFiles().Remove(own);
  return attempt;
}

// Removes the lock; false if another has come in its place, or its holder has shown a sign of life.
// Processes of one machine do so one after the other; where flock does not reach, a new lock that
// was caught is put back.
bool RemoveStale(const std::string& directory, const std::string& path, const LockFile& stale) {
  const OpenFile opened(directory, OpenFor::kDirectory, "cannot open the directory");
  LockFiles().Lock(opened.number());
  const std::string own = OwnName(path);
  bool removed = false;
  const std::optional<LockFile> present = ReadLock(path);
  // Not if its holder has woken up.
  if (present && present->text == stale.text && present->changed == stale.changed) {
    const int error = -LockFiles().Rename(path, own);
    if (error == ENOENT) return false;
    Require(error == 0, "{}: its lock counts no more, but cannot be taken over: {}; remove {}",
            directory, SystemReason(error), path);
    const std::optional<LockFile> moved = ReadLock(own);
    removed = moved && moved->text == stale.text;
    if (!removed) {
      LockFiles().Link(own, path);
    }
    LockFiles().Remove(own);
  }
  return removed;
}

// Why the lock does not count any more. Throws Error if it does.
std::string WhyStale(const std::string& directory, const std::string& path, const LockFile& lock,
                     double now) {
  std::optional<ProcessIdentity> holder;
  try {
    holder = ParseRecord<ProcessIdentity>(lock.text, path);
  } catch (const Error&) {  // of a machine that went down while it was written
  }
  const std::string who =
      holder ? fmt::format("process {} on host {}", holder->pid, holder->host) : "somebody";
  const std::optional<bool> runs =
      holder ? Environment::Current().StillRuns(*holder) : std::nullopt;
  if (runs) {
    Require(!*runs, "{} is in use: {} runs in it", directory, who);
    return fmt::format("{} has ended", who);
  }
  const double silent = now - lock.changed;
  Require(silent >= kLockSeconds,
          "{} is in use: {} runs in it and showed a sign of life {:.0f} s ago. If it has ended, "
          "try again when {:g} s have passed, or remove {}",
          directory, who, silent, kLockSeconds, path);
  return fmt::format("{} has shown no sign of life for {:.0f} s", who, silent);
}

// While it lives, the threads that are begun get no signals.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

RunLock::RunLock(const std::string& directory, const std::string& name)
    : directory_(directory),
      path_(directory + "/" + name + ".lock"),
      holder_(RecordText(Environment::Current().ThisProcess()) + "\n") {
  for (;;) {
    NoteAlive(Now());
    const Attempt attempt = TryToMake(path_, holder_);
    if (attempt.error == 0) break;
    if (attempt.swept) continue;
    if (HasNoLinks(attempt.error)) {
      spdlog::warn("{}: this file system has no hard links, so nothing keeps other processes out",
                   directory);
      holder_.clear();
      return;
    }
    Require(attempt.error == EEXIST, "cannot make the lock {}: {}", path_,
            SystemReason(attempt.error));
    const std::optional<LockFile> lock = ReadLock(path_);
    if (!lock) continue;  // released meanwhile
    const std::string why = WhyStale(directory, path_, *lock, attempt.now);
    if (RemoveStale(directory, path_, *lock)) {
      spdlog::info("{}: {}; its lock is taken over", directory, why);
    }
  }
  try {
    RemoveMatching(directory,
                   [&](std::string_view file) { return IsUnfinished(file, name + ".lock"); });
    const NoSignals others_take_them;
    alive_ = Environment::Current().MakeExecutor(1);
    alive_->Post([this] { KeepAlive(); });
  } catch (...) {
    LockFiles().Remove(path_);
    throw;
  }
}

RunLock::~RunLock() {
  if (holder_.empty()) return;
  ended_ = true;
  wakeup_.Notify();
  alive_.reset();
  try {
    RequireHeld();
    LockFiles().Remove(path_);
  } catch (const std::exception&) {  // another's, or nobody can tell: then it counts as stale
  }
}

bool RunLock::Lost() const {
  if (holder_.empty()) return false;
  try {
    const std::optional<LockFile> lock = ReadLock(path_);
    return !lock || lock->text != holder_;
  } catch (const Error&) {
    return false;
  }
}

void RunLock::RequireHeld() const {
  if (holder_.empty()) return;
  const std::optional<LockFile> lock = ReadLock(path_);
  Require(lock && lock->text == holder_,
          "{}: another process has taken this directory over; this one was silent for more than "
          "{:g} s, or {} was removed",
          directory_, kLockSeconds, path_);
}

RunLock::Moment RunLock::Now() {
  return {.steady = std::chrono::duration<double>(SteadyClock::now().time_since_epoch()).count(),
          .date = SecondsSince1970()};
}

void RunLock::NoteAlive(const Moment& moment) {
  alive_steady_ = moment.steady;
  alive_date_ = moment.date;
}

double RunLock::SilentSeconds(const Moment& now) const {
  return std::max(now.steady - alive_steady_, std::abs(now.date - alive_date_));
}

void RunLock::RequireNotSilent() const {
  if (SilentSeconds(Now()) >= kLongSilence) RequireHeld();
}

void RunLock::ShowLife() {
  const Moment now = Now();
  RequireHeld();
  if (LockFiles().Touch(path_) != 0) return;
  const bool was_silent = SilentSeconds(now) >= kLongSilence;
  woke_up_ = was_silent && !woke_up_;
  if (!woke_up_) NoteAlive(now);
}

void RunLock::KeepAlive() {
  for (wakeup_.WaitFor(kSignOfLife); !ended_; wakeup_.WaitFor(kSignOfLife)) {
    try {
      ShowLife();
    } catch (const std::exception&) {  // for whoever asks
    }
  }
}

}  // namespace lopt
