#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

#include "lopt/base/environment.h"
#include "lopt/base/wakeup.h"

namespace lopt {

// Runs jobs one after the other on a thread of its own and the pool around it, so that the thread
// that posts them stays free to answer messages.
class Background {
 public:
  // Notifies `done` after each job. Throws Error unless threads >= 1.
  Background(int threads, Wakeup* done);
  // Waits for the job that runs; those that have not begun are dropped.
  ~Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // `work` runs in the background; `then` afterwards in Poll. What it throws has posted nothing.
  void Post(std::function<void()> work, std::function<void()> then);
  // Calls the `then` of the next job that has ended, or throws what its `work` threw. False if none
  // has.
  bool Poll();
  // Returns when no work runs or waits to; what ended is left to Poll.
  void Settle();
  // Whether nothing is posted whose `then` has not been called.
  bool Idle() const;
  // Jobs whose `then` has been called.
  int64_t ended() const { return ended_; }

 private:
  struct Job {
    std::function<void()> then;
    std::exception_ptr error;
  };

  Wakeup* wakeup_;
  int64_t ended_ = 0;
  mutable std::mutex mutex_;
  std::list<Job> posted_;  // whose work has not ended
  std::list<Job> done_;
  std::unique_ptr<Environment::Executor> executor_;  // the last: its work ends first
};

}  // namespace lopt
