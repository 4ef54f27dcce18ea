#include "lopt/learner/job/await_background.h"

#include <exception>

namespace lopt {

void AwaitBackground(Background* background, MessageLoop* loop, const std::function<void()>& work) {
  bool done = false;
  std::exception_ptr error;
  background->Post(
      [&] {
        try {
          work();
        } catch (...) {
          error = std::current_exception();
        }
      },
      [&done] { done = true; });
  try {
    loop->RunUntil([&done] { return done; });
  } catch (...) {
    background->Settle();  // the work uses what is unwound now
    throw;
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace lopt
