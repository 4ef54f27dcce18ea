#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>

namespace lopt::python {

// A call into C++ that may take long. It runs on a thread of its own, calls back into Python on the
// calling one, and can be interrupted at any time. Made and ended with the GIL held:
//   LongCall call("meta_train");
//   options.stop = call.stop();
//   options.on_step = [&](...) { call.Back([&] { callback(...); }); };
//   call.Run([&] { result = RunMetaTraining(config, options); });
class LongCall {
 public:
  // Throws Error where a method of a task calls `who`, and raises SystemExit where Python ends.
  explicit LongCall(const char* who);
  ~LongCall();
  LongCall(const LongCall&) = delete;
  LongCall& operator=(const LongCall&) = delete;

  // Set when Python raised something: the work is to end in order.
  const std::atomic<bool>* stop() const { return &stop_; }

  // Runs Python code of the caller's on the thread of Run, with the GIL, and waits for it. What it
  // raises is kept and sets stop(); after that nothing is run. From any thread without the GIL.
  void Back(const std::function<void()>& python);

  // Runs `work` without the GIL. Meanwhile the handlers of signals that come are run, so that
  // Ctrl-C raises KeyboardInterrupt, where this is Python's main thread. Throws what `work` throws;
  // else what Python has raised.
  void Run(const std::function<void()>& work);

  // lopt::PinIsa, for this call's work. Throws Error if the instruction set would be another and
  // another call, whose result would have other bits, has not ended.
  void PinIsa(const std::string& isa) const;
  // The same where no call is to go on.
  static void PinIsaOfAll(const std::string& isa);

  // Has all calls of other threads stop, and waits for them; those that come later raise
  // SystemExit. For Python's end, after which its threads cannot go on. With the GIL held. A forked
  // process does not have the threads of its parent's calls, and does not wait for them.
  static void EndAll();

 private:
  static void PinIsaBeside(const std::string& isa, const char* who, size_t own_calls);
  void RunPython(const std::function<void()>* python);

  const char* who_;
  std::atomic<bool> stop_ = false;
  std::exception_ptr raised_;
  std::mutex back_mutex_;  // held by whom Python is run for
  std::mutex mutex_;       // of what follows
  std::condition_variable changed_;
  const std::function<void()>* asked_ = nullptr;  // to be run
  bool ended_ = false;                            // the work
};

// A method of a task of a user's runs on this thread, for the life of this object.
class InsideTask {
 public:
  InsideTask();
  ~InsideTask();
  InsideTask(const InsideTask&) = delete;
  InsideTask& operator=(const InsideTask&) = delete;
};

// Throws Error where a method of a task calls `who`, which may run methods of tasks on other
// threads: they would wait for this one for ever.
void RequireOutsideTasks(const char* who);

}  // namespace lopt::python
