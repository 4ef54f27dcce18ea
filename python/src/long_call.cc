#include "lopt/python/src/long_call.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/isa.h"

namespace lopt::python {

namespace nb = nanobind;

namespace {

// How long an interrupt may wait.
constexpr std::chrono::milliseconds kSignalPeriod{50};

// The calls of a process that have not ended.
struct RunningCalls {
  pid_t process = getpid();
  std::mutex mutex = {};
  std::condition_variable changed = {};
  std::set<std::atomic<bool>*> stops = {};
  bool python_ends = false;
};

// Those of this process. One that was forked has its own, as threads of its parent may have had
// the mutex.
RunningCalls& Running() {
  static std::atomic<RunningCalls*> running = new RunningCalls;
  RunningCalls* found = running;
  if (found->process != getpid()) {
    auto* own = new RunningCalls;
    if (running.compare_exchange_strong(found, own)) return *own;
    delete own;  // another thread was first
  }
  return *found;
}

[[noreturn]] void RaiseSystemExit() {
  PyErr_SetNone(PyExc_SystemExit);
  throw nb::python_error();
}

thread_local int methods_of_tasks = 0;

}  // namespace

LongCall::LongCall(const char* who) : who_(who) {
  RequireOutsideTasks(who);
  RunningCalls& running = Running();
  std::unique_lock lock(running.mutex);
  if (running.python_ends) RaiseSystemExit();
  running.stops.insert(&stop_);
}

LongCall::~LongCall() {
  RunningCalls& running = Running();
  const std::lock_guard lock(running.mutex);
  running.stops.erase(&stop_);
  running.changed.notify_all();
}

void LongCall::PinIsaBeside(const std::string& isa, const char* who, size_t own_calls) {
  RunningCalls& running = Running();
  const std::lock_guard lock(running.mutex);
  const std::string current = CurrentIsa();
  const std::vector<std::string> supported = SupportedIsas();  // of others lopt::PinIsa tells
  Require(isa == current || running.stops.size() == own_calls ||
              std::ranges::find(supported, isa) == supported.end(),
          "{}: wanted the instruction set {}, but another run of this process uses {}, and all of "
          "a process use the same; wait for its end, or take {}",
          who, isa, current, current);
  lopt::PinIsa(isa);
}

void LongCall::PinIsa(const std::string& isa) const { PinIsaBeside(isa, who_, 1); }

void LongCall::PinIsaOfAll(const std::string& isa) { PinIsaBeside(isa, "pin_isa", 0); }

void LongCall::EndAll() {
  const nb::gil_scoped_release released;
  RunningCalls& running = Running();
  std::unique_lock lock(running.mutex);
  running.python_ends = true;
  for (std::atomic<bool>* stop : running.stops) *stop = true;
  running.changed.wait(lock, [&] { return running.stops.empty(); });
}

void LongCall::Back(const std::function<void()>& python) {
  const std::lock_guard back(back_mutex_);
  std::unique_lock lock(mutex_);
  asked_ = &python;
  changed_.notify_all();
  changed_.wait(lock, [&] { return asked_ == nullptr; });
}

void LongCall::RunPython(const std::function<void()>* python) {
  if (stop_) return;
  const nb::gil_scoped_acquire acquired;
  try {
    if (python != nullptr) (*python)();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  } catch (...) {
    raised_ = std::current_exception();
    stop_ = true;
  }
}

void LongCall::Run(const std::function<void()>& work) {
  std::exception_ptr thrown;
  {
    const nb::gil_scoped_release released;
    std::thread worker([&] {
      {
        // Python knows the thread for as long as it lives: torch and others keep things of it.
        const nb::gil_scoped_acquire acquired;
        const nb::gil_scoped_release work_released;
        try {
          work();
        } catch (...) {
          thrown = std::current_exception();
        }
      }
      const std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    });
    std::unique_lock lock(mutex_);
    while (!ended_) {
      changed_.wait_for(lock, kSignalPeriod, [&] { return ended_ || asked_ != nullptr; });
      const std::function<void()>* const asked = asked_;
      lock.unlock();
      RunPython(asked);
      lock.lock();
      if (asked != nullptr) {
        asked_ = nullptr;
        changed_.notify_all();
      }
    }
    lock.unlock();
    worker.join();
  }
  if (thrown) std::rethrow_exception(thrown);
  if (raised_) std::rethrow_exception(raised_);
  if (stop_) RaiseSystemExit();
}

InsideTask::InsideTask() { ++methods_of_tasks; }

InsideTask::~InsideTask() { --methods_of_tasks; }

void RequireOutsideTasks(const char* who) {
  Require(methods_of_tasks == 0,
          "{}: a method of a task calls it; it would wait for itself for ever, as methods of tasks "
          "run one at a time",
          who);
}

}  // namespace lopt::python
