#include "learner/job/background.h"

#include <chrono>
#include <iterator>
#include <utility>

#include "base/progress.h"

namespace lopt {

Background::Background(int threads, Wakeup* done)
    : wakeup_(done), executor_(Environment::Current().MakeExecutor(threads)) {}

void Background::Post(std::function<void()> work, std::function<void()> then) {
  ++unfinished_;
  executor_->Post([this, work = std::move(work), then = std::move(then)]() mutable {
    Job job{.then = std::move(then), .error = {}};
    try {
      work();
    } catch (...) {
      job.error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      done_.push_back(std::move(job));
    }
    NoteProgress();
    wakeup_->Notify();
  });
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

void Background::Settle() {
  const auto settled = [this] {
    const std::lock_guard lock(mutex_);
    return std::ssize(done_) == unfinished_;
  };
  while (!settled()) {
    wakeup_->WaitFor(std::chrono::milliseconds(20));
  }
}

}  // namespace lopt
