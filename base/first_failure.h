#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

namespace lopt {

// The exception of the lowest index among the bodies of one parallel loop. Thread-safe.
class FirstFailure {
 public:
  // Calls body(index) and keeps what it throws.
  template <class Body>
  void Guard(const Body& body, int64_t index) {
    try {
      body(index);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (exception_ == nullptr || index < index_) {
        exception_ = std::current_exception();
        index_ = index;
      }
    }
  }

  // To be called when all bodies have ended.
  void RethrowIfAny() {
    if (exception_ != nullptr) {
      std::rethrow_exception(exception_);
    }
  }

 private:
  std::mutex mutex_;
  std::exception_ptr exception_;
  int64_t index_ = 0;
};

}  // namespace lopt
