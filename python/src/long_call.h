#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <exception>

namespace lopt::python {

// A call into C++ that may take long: it runs without the GIL, calls back into Python, and can be
// interrupted. Made and ended with the GIL held:
//   LongCall call;
//   options.stop = call.stop();
//   options.on_step = [&](...) { call.Back([&] { callback(...); }); };
//   call.Run([&] { result = RunMetaTraining(config, options); });
class LongCall {
 public:
  // Set when Python raised something: the work is to end in order.
  const std::atomic<bool>* stop() const { return &stop_; }

  // Runs Python code of the caller's, with the GIL, and after it the handlers of signals that have
  // come, so that Ctrl-C raises KeyboardInterrupt. What it raises is kept and sets stop(); after
  // that nothing is run. From any thread; signals are handled by Python's main thread alone.
  template <class F>
  void Back(const F& python) {
    if (stop_) return;
    const nanobind::gil_scoped_acquire acquired;
    try {
      python();
      if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    } catch (...) {
      raised_ = std::current_exception();
      stop_ = true;
    }
  }

  // Runs `work` without the GIL. Throws what it throws; else what Back has kept.
  template <class F>
  void Run(const F& work) {
    {
      const nanobind::gil_scoped_release released;
      work();
    }
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  std::atomic<bool> stop_ = false;
  std::exception_ptr raised_;
};

}  // namespace lopt::python
