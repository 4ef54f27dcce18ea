#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/wakeup.h"
#include "lopt/learner/job/await_background.h"
#include "lopt/learner/transport/local_transport.h"
#include "tests/error_of.h"
#include "tests/like_system_environment.h"

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

// Whose executors have room for one job in all.
class OneJobEnvironment final : public LikeSystemEnvironment {
 public:
  std::unique_ptr<Executor> MakeExecutor(int threads) override {
    class OneJob final : public Executor {
     public:
      explicit OneJob(std::unique_ptr<Executor> system) : system_(std::move(system)) {}
      void Post(std::function<void()> work) override {
        if (std::exchange(full_, true)) throw std::bad_alloc();
        system_->Post(std::move(work));
      }

     private:
      std::unique_ptr<Executor> system_;
      bool full_ = false;
    };
    return std::make_unique<OneJob>(System().MakeExecutor(threads));
  }
};

TEST_CASE("A job that could not be posted is not waited for") {
  OneJobEnvironment environment;
  const InEnvironment in(&environment);
  Wakeup wakeup;
  Background background(1, &wakeup);
  bool then = false;
  background.Post([] {}, [&then] { then = true; });
  CHECK_THROWS_AS(background.Post([] { FAIL("it ran"); }, [] { FAIL("it ended"); }),
                  std::bad_alloc);
  background.Settle();
  CHECK(!background.Idle());
  CHECK(background.Poll());
  CHECK(then);
  CHECK(background.Idle());
  CHECK(!background.Poll());
  CHECK_EQ(background.ended(), 1);
}

}  // namespace
}  // namespace lopt
