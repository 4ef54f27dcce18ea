#pragma once

#include <chrono>
#include <memory>

#include "lopt/base/environment.h"

namespace lopt {

// Lets one thread sleep until another has something for it.
class Wakeup {
 public:
  // Of the environment around it.
  Wakeup() : alarm_(Environment::Current().MakeAlarm()) {}

  void Notify() { alarm_->Notify(); }
  // Returns at once if there was a Notify since the last return, else at the next or after `time`.
  void WaitFor(std::chrono::microseconds time) { alarm_->WaitFor(time); }

 private:
  std::unique_ptr<Environment::Alarm> alarm_;
};

}  // namespace lopt
