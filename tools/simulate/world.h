#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lopt/tools/simulate/fiber.h"
#include "lopt/tools/simulate/random.h"

namespace lopt {

class Process;

// Of a simulation: time since its beginning.
using SimTime = std::chrono::microseconds;

// Where and when all of a simulation happens: the tasks of its processes take turns in one thread,
// in an order that is drawn, and time goes on when all of them wait. The same seed gives the same
// course of events.
class World {
 public:
  // With `trace` the events are kept as text.
  World(uint64_t seed, bool trace) : random_(seed), traces_(trace) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // A thread of a process.
  class Task {
   public:
    bool finished() const { return fiber_.finished(); }

   private:
    friend World;
    Task(Process* process, std::function<void()> body)
        : process_(process), fiber_(std::move(body)) {}

    Process* process_;
    Fiber fiber_;
    SimTime wakes_{0};
    bool runs_ = false;  // or has resumed the one that does
  };

  Random& random() { return random_; }
  SimTime now() const { return now_; }

  // Runs from the next step on. `body` throws nothing.
  Task* Start(Process* process, std::function<void()> body);
  // To be called by the task that runs: others go on until then, or until it is woken.
  void WaitUntil(SimTime time);
  // That task goes on then at the latest.
  void WakeAt(Task* task, SimTime time);
  // Runs the other tasks of a dead process, the youngest first, until they have ended.
  void Unwind(const Process* process);
  Task* running() const { return running_; }

  // Has it called at that time, outside of any task; it throws nothing.
  void At(SimTime time, std::function<void()> event);
  // Runs one task for a while, or lets time go on. False if there is nothing more to happen.
  bool Step();
  int64_t steps() const { return steps_; }

  template <class... Args>
  void Trace(fmt::format_string<Args...> format, Args&&... args) {
    if (traces_) Note(fmt::format(format, std::forward<Args>(args)...));
  }
  bool traces() const { return traces_; }
  const std::string& trace() const { return trace_; }

 private:
  void Run(Task* task);
  void Note(const std::string& line);

  Random random_;
  SimTime now_{0};
  int64_t steps_ = 0;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::multimap<SimTime, std::function<void()>> events_;
  Task* running_ = nullptr;
  bool traces_;
  std::string trace_;
};

}  // namespace lopt
