#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/wakeup.h"
#include "learner/job/await_background.h"
#include "learner/transport/local_transport.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

TEST_CASE("An error of the loop leaves AwaitBackground after the work that it waits for") {
  const std::unique_ptr<Transport> transport = std::move(MakeLocalTransports(1)[0]);
  Wakeup wakeup;
  Background background(1, &wakeup);
  std::atomic<bool> began = false;
  std::atomic<bool> threw = false;
  MessageLoop loop(transport.get(), &wakeup,
                   {.on_poll =
                        [&] {
                          if (!began) return false;
                          threw = true;
                          wakeup.Notify();
                          throw Error("a message that is not for it");
                        },
                    .urgent = [] { return true; },
                    .state = [] { return "waiting"; }});
  std::atomic<int64_t> sum = 0;
  int64_t ended = 0;
  const auto work = [&] {
    began = true;
    while (!threw) {
    }
    for (int64_t i = 0; i < 10'000'000; ++i) sum += i;
    ended = 1;
  };
  CHECK(ErrorOf([&] { AwaitBackground(&background, &loop, work); }) ==
        "a message that is not for it");
  CHECK(ended == 1);
  CHECK(background.Poll());
  CHECK(background.Idle());
}

}  // namespace
}  // namespace lopt
