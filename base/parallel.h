#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lopt {

// The most threads that a pool may have.
inline constexpr int kMaxThreads = 1024;

// The threads that ParallelFor uses. One pool is made at the start and lives as long as the work.
class ThreadPool {
 public:
  // Throws Error unless 1 <= threads <= kMaxThreads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // As given to the constructor.
  int threads() const;
  // Calls `work` on the calling thread; every ParallelFor inside, at any depth, runs on this pool.
  void Run(const std::function<void()>& work);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The number of threads that a ParallelFor called here may use: those of the pool around it, 1
// outside of any.
int CurrentThreads();

// Calls body(0), ..., body(n - 1) in any order, in parallel on the pool around it (one after the
// other outside of any), and returns when all are done. May be nested; a thread that waits helps
// with other work. Bodies treat denormal numbers as the caller does (base/denormals.h). If bodies
// throw, the exception of the lowest index is thrown when all have ended.
void ParallelFor(int64_t n, const std::function<void(int64_t)>& body);

}  // namespace lopt
