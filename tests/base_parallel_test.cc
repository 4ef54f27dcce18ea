#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/parallel.h"

namespace lopt {
namespace {

// Holds threads until `count` of them are there at once. Half a minute later it gives up, so that a
// test without enough threads fails and does not hang.
class Meeting {
 public:
  explicit Meeting(int count) : missing_(count) {}
  void Arrive() {
    std::unique_lock lock(mutex_);
    if (--missing_ == 0) {
      complete_ = true;
      all_here_.notify_all();
    }
    all_here_.wait_for(lock, std::chrono::seconds(30), [&] { return complete_; });
  }
  bool complete() const { return complete_; }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  int missing_;
  bool complete_ = false;
};

std::set<std::thread::id> ThreadsUsed(int64_t n) {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  ParallelFor(n, [&](int64_t) {
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  return ids;
}

TEST_CASE("Every index is visited exactly once") {
  ThreadPool pool(3);
  for (const int64_t n : {0, 1, 2, 7, 1000, 20000}) {
    std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
    pool.Run([&] { ParallelFor(n, [&](int64_t i) { ++visits[static_cast<size_t>(i)]; }); });
    CHECK(std::ranges::all_of(visits, [](const auto& count) { return count == 1; }));
  }
}

TEST_CASE("Outside of a pool a loop runs in order in the calling thread") {
  const auto check_serial = [] {
    CHECK(CurrentThreads() == 1);
    std::vector<int64_t> order;
    ParallelFor(100, [&](int64_t i) { order.push_back(i); });
    CHECK(order.size() == 100);
    CHECK(std::ranges::is_sorted(order));
    CHECK(ThreadsUsed(100) == std::set{std::this_thread::get_id()});
  };
  check_serial();
  ThreadPool pool(4);
  check_serial();
  pool.Run([] { ParallelFor(100, [](int64_t) {}); });
  check_serial();
}

TEST_CASE("A pool of one runs everything in the calling thread") {
  ThreadPool pool(1);
  pool.Run([] {
    CHECK(CurrentThreads() == 1);
    CHECK(ThreadsUsed(100) == std::set{std::this_thread::get_id()});
  });
}

TEST_CASE("A pool has all the threads it was asked for, more than the machine has if need be") {
  for (const int threads : {2, 8, 3}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    // Ends only if as many bodies as threads run at once.
    Meeting meeting(threads);
    pool.Run([&] {
      CHECK(CurrentThreads() == threads);
      ParallelFor(threads, [&](int64_t) { meeting.Arrive(); });
    });
    CHECK(meeting.complete());
  }
}

TEST_CASE("A pool keeps its threads when a smaller one is made and destroyed") {
  ThreadPool large(8);
  {
    ThreadPool small(2);
    small.Run([] { ParallelFor(10, [](int64_t) {}); });
    Meeting meeting(8);
    large.Run([&] { ParallelFor(8, [&](int64_t) { meeting.Arrive(); }); });
    CHECK(meeting.complete());
  }
  Meeting meeting(8);
  large.Run([&] { ParallelFor(8, [&](int64_t) { meeting.Arrive(); }); });
  CHECK(meeting.complete());
}

TEST_CASE("Run works on the calling thread") {
  ThreadPool pool(4);
  std::thread::id ran;
  pool.Run([&] { ran = std::this_thread::get_id(); });
  CHECK(ran == std::this_thread::get_id());
}

TEST_CASE("Loops nest to any depth and know their pool") {
  ThreadPool pool(4);
  std::atomic<int> visits = 0;
  std::atomic<int> wrong = 0;
  pool.Run([&] {
    ParallelFor(6, [&](int64_t) {
      ParallelFor(5, [&](int64_t) {
        wrong += CurrentThreads() != 4;
        ParallelFor(7, [&](int64_t) {
          wrong += CurrentThreads() != 4;
          ++visits;
        });
      });
    });
  });
  CHECK(visits == 6 * 5 * 7);
  CHECK(wrong == 0);
}

TEST_CASE("Nested loops share the threads of their pool") {
  // Two outer bodies with two inner ones each need four threads at once.
  ThreadPool pool(4);
  Meeting meeting(4);
  pool.Run([&] {
    ParallelFor(2, [&](int64_t) { ParallelFor(2, [&](int64_t) { meeting.Arrive(); }); });
  });
  CHECK(meeting.complete());
}

TEST_CASE("A pool inside another's body takes over until it ends") {
  ThreadPool outer(3);
  ThreadPool inner(2);
  outer.Run([&] {
    ParallelFor(3, [&](int64_t) {
      if (CurrentThreads() != 3) {
        throw Error("not inside the outer pool");
      }
    });
    inner.Run([] {
      CHECK(CurrentThreads() == 2);
      ParallelFor(4, [](int64_t) {
        if (CurrentThreads() != 2) {
          throw Error("not inside the inner pool");
        }
      });
    });
    CHECK(CurrentThreads() == 3);
  });
  CHECK(CurrentThreads() == 1);
}

TEST_CASE("The exception of the lowest index is thrown after all bodies have ended") {
  const auto check = [] {
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::atomic<int> ended = 0;
      std::string message;
      try {
        ParallelFor(50, [&](int64_t i) {
          ++ended;
          if (i >= 11 && i % 2 == 1) {
            throw Error("body " + std::to_string(i));
          }
        });
      } catch (const Error& error) {
        message = error.what();
      }
      CHECK(message == "body 11");
      CHECK(ended == 50);
    }
  };
  check();
  ThreadPool pool(4);
  pool.Run(check);
}

TEST_CASE("An exception leaves nested loops and Run, and the pool goes on") {
  ThreadPool pool(4);
  CHECK_THROWS_WITH_AS(pool.Run([] {
    ParallelFor(3, [](int64_t i) { ParallelFor(3, [&](int64_t j) { Fail("{} {}", i, j); }); });
  }),
                       "0 0", Error);
  CHECK(CurrentThreads() == 1);
  std::atomic<int> visits = 0;
  pool.Run([&] { ParallelFor(10, [&](int64_t) { ++visits; }); });
  CHECK(visits == 10);
}

TEST_CASE("Several threads may use one pool at the same time") {
  ThreadPool pool(3);
  std::atomic<int> visits = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        pool.Run([&] { ParallelFor(50, [&](int64_t) { ++visits; }); });
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  CHECK(visits == 3 * 20 * 50);
}

TEST_CASE("What bodies write is seen after the loop without further locks") {
  ThreadPool pool(4);
  pool.Run([] {
    std::vector<int64_t> squares(2000);
    ParallelFor(2000, [&](int64_t i) { squares[static_cast<size_t>(i)] = i * i; });
    for (int64_t i = 0; i < 2000; ++i) {
      REQUIRE(squares[static_cast<size_t>(i)] == i * i);
    }
  });
}

// Destroyed later than what was made with the first pool, at the end of the process.
std::unique_ptr<ThreadPool> outlives_the_tests;

TEST_CASE("A pool may live to the end of the process") {
  outlives_the_tests = std::make_unique<ThreadPool>(2);
  CHECK(outlives_the_tests->threads() == 2);
}

TEST_CASE("A pool without threads is an error") {
  CHECK_THROWS_WITH_AS(
      ThreadPool(0), "ThreadPool: the number of threads must be at least 1 and at most 1024, got 0",
      Error);
  CHECK_THROWS_WITH_AS(
      ThreadPool(-2),
      "ThreadPool: the number of threads must be at least 1 and at most 1024, got -2", Error);
}

}  // namespace
}  // namespace lopt
