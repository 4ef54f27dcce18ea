#pragma once

#include <boost/context/fiber.hpp>
#include <functional>

namespace lopt {

// A function that runs on a stack of its own, in turns with whoever resumes it, all in one thread.
// It may wait inside a catch block: the exceptions that are being handled are its own.
class Fiber {
 public:
  // `body` throws nothing.
  explicit Fiber(std::function<void()> body);
  // Only when it has finished.
  ~Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs it until it waits or ends. From anywhere but itself, also from another fiber.
  void Resume();
  // To be called inside: goes back to who resumed it.
  void Wait();
  bool finished() const { return !there_; }

 private:
  boost::context::fiber there_;  // where it goes on
  boost::context::fiber back_;   // who resumed it
};

}  // namespace lopt
