#include "learner/job/background.h"

#include <utility>

#include "base/progress.h"

namespace lopt {

Background::Background(int threads, Wakeup* done) : pool_(threads), wakeup_(done) {
  thread_ = std::thread([this] { Loop(); });
}

Background::~Background() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

void Background::Post(std::function<void()> work, std::function<void()> then) {
  ++unfinished_;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({.work = std::move(work), .then = std::move(then), .error = {}});
  }
  posted_.notify_one();
}

bool Background::Poll() {
  Job job;
  {
    const std::lock_guard lock(mutex_);
    if (done_.empty()) {
      return false;
    }
    job = std::move(done_.front());
    done_.pop_front();
  }
  --unfinished_;
  ++ended_;
  if (job.error) {
    std::rethrow_exception(job.error);
  }
  job.then();
  return true;
}

void Background::Loop() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      posted_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (ending_) {
        return;
      }
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    try {
      pool_.Run(job.work);
    } catch (...) {
      job.error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      done_.push_back(std::move(job));
    }
    NoteProgress();
    wakeup_->Notify();
  }
}

}  // namespace lopt
