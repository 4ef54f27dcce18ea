#include "learner/job/await_background.h"

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
  loop->RunUntil([&done] { return done; });
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace lopt
