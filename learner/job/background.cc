#include "lopt/learner/job/background.h"

#include <chrono>
#include <utility>

#include "lopt/base/progress.h"
#include "lopt/base/wakeup.h"

namespace lopt {

Background::Background(int threads, Wakeup* done)
    : wakeup_(done), executor_(Environment::Current().MakeExecutor(threads)) {}

void Background::Post(std::function<void()> work, std::function<void()> then) {
  std::list<Job> mine(1);  // its place, so that nothing can fail once the work has ended
  const auto job = mine.begin();
  job->then = std::move(then);
  {
    const std::lock_guard lock(mutex_);
    posted_.splice(posted_.end(), mine);
  }
  const auto run = [this, job, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      job->error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      done_.splice(done_.end(), posted_, job);
    }
    NoteProgress();
    wakeup_->Notify();
  };
  try {
    executor_->Post(run);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    posted_.erase(job);
    throw;
  }
}

bool Background::Poll() {
  std::list<Job> ended;
  {
    const std::lock_guard lock(mutex_);
    if (done_.empty()) {
      return false;
    }
    ended.splice(ended.end(), done_, done_.begin());
  }
  ++ended_;
  if (ended.front().error) {
    std::rethrow_exception(ended.front().error);
  }
  ended.front().then();
  return true;
}

bool Background::Idle() const {
  const std::lock_guard lock(mutex_);
  return posted_.empty() && done_.empty();
}

void Background::Settle() {
  const auto settled = [this] {
    const std::lock_guard lock(mutex_);
    return posted_.empty();
  };
  while (!settled()) {
    wakeup_->WaitFor(std::chrono::milliseconds(20));
  }
}

}  // namespace lopt
