#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lopt/base/environment.h"
#include "lopt/tools/simulate/world.h"

namespace lopt {

// Thrown where a process that has been killed would wait, so that its stacks are cleared. It is no
// std::exception: nobody may take it for an error.
struct Killed {};

// A machine has processes of its own and a clock of its own.
struct Machine {
  std::string host = {};
  std::string boot = {};
  std::chrono::microseconds clock{0};  // ahead of the simulation's
};

// A process of a simulation: what the code that runs in it gets from the world. When it has been
// killed nothing that it does has an effect.
class Process final : public Environment {
 public:
  struct Options {
    std::string name = {};  // for the trace
    int64_t pid = 1;
    const Machine* machine = nullptr;
    // Called before each message and each call of the file system; may kill the process.
    std::function<void(Process*)> on_point = {};
    // Whether that process of the same machine runs.
    std::function<bool(const ProcessIdentity&)> runs = {};
  };
  Process(World* world, Options options) : world_(world), options_(std::move(options)) {}

  World& world() const { return *world_; }
  const std::string& name() const { return options_.name; }
  const Machine& machine() const { return *options_.machine; }
  void UseFiles(FileSystem* files) { files_ = files; }

  // Its main thread. `body` may throw Killed.
  void Run(std::function<void()> body);
  // Whether its main thread has ended.
  bool ended() const { return ended_; }
  void Kill(std::string_view why);
  bool dead() const { return dead_; }
  // Computing, waking up and files take so many times as long.
  void SetSlowness(int64_t slowness) { slowness_ = slowness; }
  // It does nothing until then.
  void Stop(SimTime until) { stopped_until_ = until; }

  // Something that the process does to the world is about to happen. False if it is dead.
  bool Point();
  // To be called in its tasks. Returns at once if it is dead.
  void Wait(SimTime time);
  // The same, but throws Killed where it is dead, once its other tasks have ended.
  void WaitOrDie(SimTime time);
  // Has a task that waits go on.
  void Wake(World::Task* task);
  // Draws a short time that something takes.
  SimTime ShortTime(int bits);

  std::chrono::steady_clock::time_point Now() override;
  std::chrono::system_clock::time_point Date() override;
  std::unique_ptr<Alarm> MakeAlarm() override;
  std::unique_ptr<Executor> MakeExecutor(int threads) override;
  FileSystem& files() override { return *files_; }
  std::string HostName() override { return options_.machine->host; }
  int64_t ProcessId() override { return options_.pid; }
  uint64_t UniqueNumber() override { return unique_number_++; }
  ProcessIdentity ThisProcess() override;
  std::optional<bool> StillRuns(const ProcessIdentity& process) override;
  void Say(std::string_view line) override { world_->Trace("{} says: {}", name(), line); }

 private:
  World* world_;
  Options options_;
  FileSystem* files_ = nullptr;
  World::Task* main_ = nullptr;
  bool dead_ = false;
  bool ended_ = false;
  int64_t slowness_ = 1;
  SimTime stopped_until_{0};
  uint64_t unique_number_ = 0;
};

}  // namespace lopt
