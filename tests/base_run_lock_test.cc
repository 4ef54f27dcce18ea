#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/platform.h"
#include "lopt/base/process_identity.h"
#include "lopt/base/record.h"
#include "lopt/base/run_lock.h"
#include "lopt/tools/simulate/passing_files.h"
#include "tests/error_of.h"
#include "tests/learner_child.h"
#include "tests/like_system_environment.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

// Writes the lock that such a process left, `age` seconds ago.
void LeaveLock(const std::string& path, const ProcessIdentity& holder, double age) {
  WriteTextFile(path, RecordText(holder) + "\n");
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec -= static_cast<time_t>(age);
  const std::array<timespec, 2> times = {now, now};
  REQUIRE_EQ(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0), 0);
}

ProcessIdentity OnAnotherMachine() {
  return {.host = "node7", .machine = "another boot", .pid = 42, .start = 1};
}

size_t Entries(const std::string& directory) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST_CASE("A directory has one lock of a name, which goes when its holder does") {
  const TempDirectory scratch;
  {
    const RunLock first(scratch.path());
    first.RequireHeld();
    CHECK_EQ(ErrorOf([&] { const RunLock second(scratch.path()); }),
             fmt::format("{} is in use: process {} on host {} runs in it", scratch.path(),
                         ::getpid(), HostName()));
    const RunLock other(scratch.path(), "launch");
    CHECK_EQ(Entries(scratch.path()), 2);
  }
  CHECK_EQ(Entries(scratch.path()), 0);
  const RunLock again(scratch.path());
}

// Has no memory for threads, or none for anything about files.
class PoorEnvironment final : public LikeSystemEnvironment {
 public:
  std::unique_ptr<Executor> MakeExecutor(int threads) override {
    if (!threads_) throw std::bad_alloc();
    return System().MakeExecutor(threads);
  }
  FileSystem& files() override {
    if (!files_) throw std::bad_alloc();
    return System().files();
  }

  bool threads_ = true;
  bool files_ = true;
};

TEST_CASE("A lock that ran out of memory is not left behind by its beginning") {
  const TempDirectory scratch;
  PoorEnvironment environment;
  environment.threads_ = false;
  const InEnvironment in(&environment);
  CHECK_THROWS_AS(RunLock(scratch.path()), std::bad_alloc);
  CHECK_EQ(Entries(scratch.path()), 0);
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  CHECK_EQ(::sigismember(&blocked, SIGTERM), 0);
  environment.threads_ = true;
  const RunLock lock(scratch.path());
  lock.RequireHeld();
}

TEST_CASE(
    "A lock whose end runs out of memory stays, for whoever finds that its holder has ended") {
  const TempDirectory scratch;
  PoorEnvironment environment;
  const InEnvironment in(&environment);
  {
    const RunLock lock(scratch.path());
    environment.files_ = false;
  }
  environment.files_ = true;
  CHECK_EQ(Entries(scratch.path()), 1);
}

TEST_CASE("The lock of a process that was killed is taken over at once") {
  const TempDirectory scratch;
  const ChildEnd end = RunInChild([&] {
    const RunLock lock(scratch.path());
    ::kill(::getpid(), SIGKILL);
  });
  CHECK_EQ(end.signal, SIGKILL);
  REQUIRE(fs::exists(scratch / "run.lock"));
  const RunLock lock(scratch.path());
  lock.RequireHeld();
  CHECK_EQ(Entries(scratch.path()), 1);
}

TEST_CASE("A process may end while it is read") {
  for (int i = 0; i < 300; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    std::thread reaper([&] { ::waitpid(child, nullptr, 0); });
    while (ReadProcessStat(child)) continue;
    reaper.join();
    CHECK_FALSE(ReadProcessStat(child));
  }
}

TEST_CASE("A process is known by more than its number, and a zombie has ended") {
  ProcessIdentity process = ThisProcess();
  CHECK_EQ(StillRuns(process), true);
  ++process.start;
  CHECK_EQ(StillRuns(process), false);
  process = ThisProcess();
  process.machine += "x";
  CHECK_FALSE(StillRuns(process).has_value());
  // Two machines that do not say which they are are not one.
  process.machine = "";
  CHECK_FALSE(StillRuns(process).has_value());
  CHECK_EQ(ProcessSpaceOf("a boot", "pid:[1]"), "a boot pid:[1]");
  CHECK_EQ(ProcessSpaceOf("", "pid:[1]"), "");
  CHECK_EQ(ProcessSpaceOf("a boot", ""), "");

  std::array<int, 2> ends = {};
  REQUIRE_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = RecordText(ThisProcess());
    if (::write(ends[1], text.data(), text.size()) < 0) ::_exit(1);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::array<char, 1000> buffer = {};
  const ssize_t size = ::read(ends[0], buffer.data(), buffer.size());
  REQUIRE_GT(size, 0);
  siginfo_t info;
  REQUIRE_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  CHECK_EQ(StillRuns(ParseRecord<ProcessIdentity>(
               std::string(buffer.data(), static_cast<size_t>(size)), "the child")),
           false);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
}

TEST_CASE("The lock of another host is kept while it shows signs of life, and says how to go on") {
  const TempDirectory scratch;
  const std::string path = scratch / "run.lock";
  LeaveLock(path, OnAnotherMachine(), kLockSeconds / 2);
  CHECK_EQ(
      ErrorOf([&] { const RunLock lock(scratch.path()); }),
      scratch.path() +
          " is in use: process 42 on host node7 runs in it and showed a sign of life 30 s ago. "
          "If it has ended, try again when 60 s have passed, or remove " +
          path);
  LeaveLock(path, OnAnotherMachine(), kLockSeconds + 1);
  const RunLock lock(scratch.path());
  lock.RequireHeld();
  CHECK_EQ(Entries(scratch.path()), 1);
}

// Files of which none can be renamed, as a stranger's in a directory with the sticky bit.
class FixedFiles final : public PassingFiles {
 public:
  FixedFiles() : PassingFiles(&SystemFiles()) {}
  int Rename(const std::string& /*from*/, const std::string& /*to*/) override { return -EPERM; }
};

TEST_CASE("A lock that counts no more and cannot be taken over is an Error") {
  const TempDirectory scratch;
  LeaveLock(scratch / "run.lock", OnAnotherMachine(), kLockSeconds + 1);
  EnvironmentWith<FixedFiles> environment;
  const InEnvironment in(&environment);
  CHECK_EQ(ErrorOf([&] { const RunLock lock(scratch.path()); }),
           scratch.path() +
               ": its lock counts no more, but cannot be taken over: Operation not "
               "permitted; remove " +
               (scratch / "run.lock"));
}

TEST_CASE("A lock that cannot be read counts by its age") {
  const TempDirectory scratch;
  const std::string path = scratch / "run.lock";
  LeaveLock(path, OnAnotherMachine(), 0);
  fs::resize_file(path, 0);
  CHECK(ErrorOf([&] {
          const RunLock lock(scratch.path());
        }).find("is in use: somebody runs in it") != std::string::npos);
  const std::array<timespec, 2> long_ago = {};
  REQUIRE_EQ(::utimensat(AT_FDCWD, path.c_str(), long_ago.data(), 0), 0);
  const RunLock lock(scratch.path());
  lock.RequireHeld();
}

TEST_CASE("A holder whose lock was taken over is told, and leaves the new one alone") {
  const TempDirectory scratch;
  const std::string path = scratch / "run.lock";
  {
    const RunLock lock(scratch.path());
    LeaveLock(path, OnAnotherMachine(), 0);
    CHECK(ErrorOf([&] {
            lock.RequireHeld();
          }).starts_with(scratch.path() + ": another process has taken this directory over"));
  }
  CHECK(fs::exists(path));
}

// Files among which, before a first link is made, another process gets the lock and sweeps.
class SweptFiles final : public PassingFiles {
 public:
  SweptFiles() : PassingFiles(&SystemFiles()) {}
  int Link(const std::string& from, const std::string& to) override {
    if (!swept_) {
      swept_ = true;
      LeaveLock(to, ThisProcess(), 0);
      PassingFiles::Remove(from);
    }
    return PassingFiles::Link(from, to);
  }

 private:
  bool swept_ = false;
};

TEST_CASE("Who loses the race for a lock is told that it is in use, though its file was swept") {
  const TempDirectory scratch;
  EnvironmentWith<SweptFiles> environment;
  const InEnvironment in(&environment);
  CHECK_EQ(ErrorOf([&] { const RunLock lock(scratch.path()); }),
           fmt::format("{} is in use: process {} on host {} runs in it", scratch.path(), ::getpid(),
                       HostName()));
  CHECK_EQ(Entries(scratch.path()), 1);
}

// Whose clocks can be set ahead, each by itself.
class LateEnvironment final : public LikeSystemEnvironment {
 public:
  std::chrono::steady_clock::time_point Now() override { return System().Now() + steady_; }
  std::chrono::system_clock::time_point Date() override { return System().Date() + date_; }

  std::chrono::seconds steady_{0};
  std::chrono::seconds date_{0};
};

TEST_CASE("A holder looks for its lock once it may have been silent, by either clock") {
  const TempDirectory scratch;
  const std::string path = scratch / "run.lock";
  LateEnvironment environment;
  const InEnvironment in(&environment);
  const RunLock lock(scratch.path());
  const std::string own = ReadTextFile(path);
  LeaveLock(path, OnAnotherMachine(), 0);
  lock.RequireNotSilent();  // nobody can have taken it yet
  const auto error = [&](int64_t steady, int64_t date) {
    environment.steady_ = std::chrono::seconds(steady);
    environment.date_ = std::chrono::seconds(date);
    return ErrorOf([&] { lock.RequireNotSilent(); });
  };
  const std::string taken = scratch.path() + ": another process has taken this directory over";
  CHECK(error(31, 0).starts_with(taken));
  CHECK(error(0, 31).starts_with(taken));
  CHECK(error(0, -3600).starts_with(taken));
  WriteTextFile(path, own);
  environment.steady_ = environment.date_ = std::chrono::seconds(3600);
  lock.RequireNotSilent();
}

TEST_CASE("Of processes that ask at the same time one gets the lock, also one that was left") {
  const TempDirectory scratch;
  for (const bool left : {false, true}) {
    CAPTURE(left);
    if (left) LeaveLock(scratch / "run.lock", OnAnotherMachine(), 1000);
    std::array<int, 2> start = {};
    std::array<int, 2> got = {};
    REQUIRE_EQ(::pipe(start.data()), 0);
    REQUIRE_EQ(::pipe(got.data()), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      ::close(start[1]);
      ::close(got[0]);
      char none = 0;
      if (::read(start[0], &none, 1) != 0) ::_exit(2);  // until the parent has closed its end
      try {
        const RunLock lock(scratch.path());
        if (::write(got[1], "x", 1) != 1) ::_exit(2);
        ::close(got[1]);
        ::pause();
      } catch (const Error&) {
        ::_exit(0);
      }
    }
    ::close(start[0]);
    ::close(got[1]);
    ::close(start[1]);
    // The end of the pipe comes when one holds the lock and all others have ended.
    int holders = 0;
    for (char byte = 0; ::read(got[0], &byte, 1) == 1;) ++holders;
    CHECK_EQ(holders, 1);
    ::close(got[0]);
    for (const pid_t child : children) ::kill(child, SIGKILL);
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    fs::remove(scratch / "run.lock");
  }
}

}  // namespace
}  // namespace lopt
