#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "lopt/base/denormals.h"
#include "lopt/base/error.h"
#include "lopt/base/first_failure.h"
#include "lopt/base/parallel.h"

namespace lopt {
namespace {

// One ParallelFor that has not ended. Guarded by its pool's mutex, but for `failure`.
struct Loop {
  const std::function<void(int64_t)>* body;
  int64_t size;
  int64_t next = 0;   // the first index that nobody has begun
  int64_t ended = 0;  // bodies that have returned or thrown
  bool flushed = FlushDenormals::Active();
  FirstFailure failure;
};

class Pool {
 public:
  explicit Pool(int count);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int count() const { return count_; }
  void RunLoop(Loop& loop);

 private:
  // Ends the workers.
  void Close();
  // Runs bodies until stop() is true; `lock` is held on entry and exit and while stop() is called.
  template <class Stop>
  void RunUntil(const Stop& stop, std::unique_lock<std::mutex>& lock);

  const int count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Loop*> open_;  // loops with indices left, the innermost last
  bool closing_ = false;
  std::vector<std::thread> workers_;
};

// The pool around the code that runs now, null outside of any. Workers belong to one pool for life.
thread_local Pool* current_pool = nullptr;

Pool::Pool(int count) : count_(count) {
  try {
    for (int i = 1; i < count; ++i) {
      workers_.emplace_back([this] {
        current_pool = this;
        std::unique_lock lock(mutex_);
        RunUntil([this] { return closing_; }, lock);
      });
    }
  } catch (...) {  // the machine gives no more threads
    Close();
    throw;
  }
}

Pool::~Pool() { Close(); }

void Pool::Close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

template <class Stop>
void Pool::RunUntil(const Stop& stop, std::unique_lock<std::mutex>& lock) {
  while (!stop()) {
    if (open_.empty()) {
      changed_.wait(lock);
      continue;
    }
    Loop& loop = *open_.back();
    const int64_t index = loop.next++;
    if (loop.next == loop.size) {
      open_.pop_back();
    }
    lock.unlock();
    {
      const FlushDenormals flush(loop.flushed);
      loop.failure.Guard(*loop.body, index);
    }
    lock.lock();
    if (++loop.ended == loop.size) {
      changed_.notify_all();
    }
  }
}

void Pool::RunLoop(Loop& loop) {
  std::unique_lock lock(mutex_);
  open_.push_back(&loop);
  changed_.notify_all();
  RunUntil([&loop] { return loop.ended == loop.size; }, lock);
}

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(int count) : pool(count) {}

  Pool pool;
};

ThreadPool::ThreadPool(int threads) {
  Require(threads >= 1 && threads <= kMaxThreads,
          "ThreadPool: the number of threads must be at least 1 and at most {}, got {}",
          kMaxThreads, threads);
  impl_ = std::make_unique<Impl>(threads);
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return impl_->pool.count(); }

void ThreadPool::Run(const std::function<void()>& work) {
  struct Restore {
    Pool* outer;
    ~Restore() { current_pool = outer; }
  } const restore{std::exchange(current_pool, &impl_->pool)};
  work();
}

int CurrentThreads() { return current_pool == nullptr ? 1 : current_pool->count(); }

void ParallelFor(int64_t n, const std::function<void(int64_t)>& body) {
  if (n <= 0) {
    return;
  }
  Loop loop{.body = &body, .size = n, .failure = {}};
  if (CurrentThreads() == 1) {
    for (int64_t i = 0; i < n; ++i) {
      loop.failure.Guard(body, i);
    }
  } else {
    current_pool->RunLoop(loop);
  }
  loop.failure.RethrowIfAny();
}

}  // namespace lopt
