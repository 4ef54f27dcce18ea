#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "lopt/base/denormals.h"
#include "lopt/base/error.h"
#include "lopt/base/first_failure.h"
#include "lopt/base/parallel.h"

namespace lopt {
namespace {

// oneTBB gives a process as many threads as the machine has, however many an arena asks for. While
// pools want more, this raises the limit to the largest of them.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) {
    const std::lock_guard lock(mutex());
    position_ = wanted().insert(threads);
    Apply();
  }
  ~ThreadLimit() {
    const std::lock_guard lock(mutex());
    wanted().erase(position_);
    Apply();
  }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  // Never destroyed: a pool may be destroyed later, at the end of the process.
  static std::mutex& mutex() {
    static auto* const mutex = new std::mutex;
    return *mutex;
  }
  static std::multiset<int>& wanted() {
    static auto* const wanted = new std::multiset<int>;
    return *wanted;
  }
  static void Apply() {
    static auto* const control = new std::optional<tbb::global_control>;
    control->reset();
    if (!wanted().empty() && *wanted().rbegin() > tbb::info::default_concurrency()) {
      control->emplace(tbb::global_control::max_allowed_parallelism,
                       static_cast<size_t>(*wanted().rbegin()));
    }
  }

  std::multiset<int>::iterator position_;
};

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(int threads) : limit(threads), arena(threads) {}

  ThreadLimit limit;
  tbb::task_arena arena;
};

namespace {

// The pool around the code that runs now, as its thread count; oneTBB itself cannot tell an arena
// of ours from its own default one. Every body sets it for as long as it runs, so it is right
// whatever else the thread does while it waits.
thread_local int current_threads = 1;

class InsidePool {
 public:
  explicit InsidePool(int threads) : outer_(std::exchange(current_threads, threads)) {}
  ~InsidePool() { current_threads = outer_; }
  InsidePool(const InsidePool&) = delete;
  InsidePool& operator=(const InsidePool&) = delete;

 private:
  int outer_;
};

}  // namespace

ThreadPool::ThreadPool(int threads) {
  Require(threads >= 1 && threads <= kMaxThreads,
          "ThreadPool: the number of threads must be at least 1 and at most {}, got {}",
          kMaxThreads, threads);
  impl_ = std::make_unique<Impl>(threads);
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return impl_->arena.max_concurrency(); }

void ThreadPool::Run(const std::function<void()>& work) {
  impl_->arena.execute([&] {
    const InsidePool inside(threads());
    work();
  });
}

int CurrentThreads() { return current_threads; }

void ParallelFor(int64_t n, const std::function<void(int64_t)>& body) {
  FirstFailure failure;
  const int threads = current_threads;
  if (threads == 1 || n == 1) {
    for (int64_t i = 0; i < n; ++i) {
      failure.Guard(body, i);
    }
  } else {
    const bool flushed = FlushDenormals::Active();
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, n, 1),
        [&](const tbb::blocked_range<int64_t>& range) {
          const InsidePool inside(threads);
          const FlushDenormals flush(flushed);
          for (int64_t i = range.begin(); i < range.end(); ++i) {
            failure.Guard(body, i);
          }
        },
        tbb::simple_partitioner());
  }
  failure.RethrowIfAny();
}

}  // namespace lopt
