#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lopt/base/file_system.h"
#include "lopt/base/process_identity.h"

namespace lopt {

// What a run gets from the world besides its arguments: time, waiting, work beside the caller,
// files, and who it is. There is the system's; a simulator (tools/simulate/) puts another around
// what it runs. The one around the code is a pointer of its thread, as the pool of ParallelFor is:
// what asks for it lies deep inside other calls, and all of a thread's answers come from one world.
// It is the only state of this kind.
class Environment {
 public:
  // Lets one thread sleep until another has something for it (base/wakeup.h).
  class Alarm {
   public:
    virtual ~Alarm() = default;
    virtual void Notify() = 0;
    virtual void WaitFor(std::chrono::microseconds time) = 0;
  };
  // Does pieces of work one after the other, beside the caller.
  class Executor {
   public:
    // Waits for the work that runs; what has not begun is dropped.
    virtual ~Executor() = default;
    virtual void Post(std::function<void()> work) = 0;
  };

  virtual ~Environment() = default;

  virtual std::chrono::steady_clock::time_point Now() = 0;
  virtual std::chrono::system_clock::time_point Date() = 0;
  virtual std::unique_ptr<Alarm> MakeAlarm() = 0;
  // With a pool of so many threads around the work. Throws Error unless threads >= 1.
  virtual std::unique_ptr<Executor> MakeExecutor(int threads) = 0;
  virtual FileSystem& files() = 0;
  virtual std::string HostName() = 0;
  virtual int64_t ProcessId() = 0;
  // Another at each call, which nobody can guess: for names that no other writer has.
  virtual uint64_t UniqueNumber() = 0;
  virtual ProcessIdentity ThisProcess() = 0;
  virtual std::optional<bool> StillRuns(const ProcessIdentity& process) = 0;
  // A line for the user on standard error, after "lopt: ".
  virtual void Say(std::string_view line) = 0;

  // The one around the code that calls: the system's, unless InEnvironment says otherwise. The work
  // of an Executor has that of the thread that made it.
  static Environment& Current();
  // The system's.
  static Environment& System();
};

// Puts an environment around what this thread does while it lives.
class InEnvironment {
 public:
  explicit InEnvironment(Environment* environment);
  ~InEnvironment();
  InEnvironment(const InEnvironment&) = delete;
  InEnvironment& operator=(const InEnvironment&) = delete;

 private:
  Environment* outer_;
};

// The clock of the environment that never goes back, to be used as std::chrono's.
struct SteadyClock {
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr bool is_steady = true;
  static time_point now() { return Environment::Current().Now(); }
};

inline double SecondsBetween(SteadyClock::time_point from, SteadyClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// By the environment's clock of the date.
double SecondsSince1970();

}  // namespace lopt
