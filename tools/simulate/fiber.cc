#include "lopt/tools/simulate/fiber.h"

#include <cxxabi.h>

#include <array>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace lopt {
namespace {

using boost::context::stack_context;

// Stacks are used again: to map one takes longer than most fibers live.
class StackPool {
 public:
  ~StackPool() {
    for (stack_context& stack : free_) fresh_.deallocate(stack);
  }
  stack_context Take() {
    if (free_.empty()) return fresh_.allocate();
    stack_context stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void Return(const stack_context& stack) { free_.push_back(stack); }

 private:
  static constexpr size_t kStackBytes = size_t{512} << 10;
  boost::context::protected_fixedsize_stack fresh_{kStackBytes};
  std::vector<stack_context> free_;
};

StackPool& Stacks() {
  thread_local StackPool pool;
  return pool;
}

// As Boost.Context wants it.
struct PooledStack {
  using traits_type = boost::context::protected_fixedsize_stack::traits_type;
  stack_context allocate() { return Stacks().Take(); }               // NOLINT: Boost's name
  void deallocate(stack_context& stack) { Stacks().Return(stack); }  // NOLINT
};

// What the C++ ABI keeps for a thread: the exceptions that are being handled and thrown.
using Exceptions = std::array<std::byte, 2 * sizeof(void*)>;

void Exchange(Exceptions* others) {
  Exceptions mine;
  void* const globals = abi::__cxa_get_globals();
  std::memcpy(&mine, globals, sizeof mine);
  std::memcpy(globals, others, sizeof mine);
  *others = mine;
}

}  // namespace

Fiber::Fiber(std::function<void()> body)
    : there_(std::allocator_arg, PooledStack(),
             [this, body = std::move(body)](boost::context::fiber&& back) {
               back_ = std::move(back);
               body();
               return std::move(back_);
             }) {}

void Fiber::Resume() {
  Exceptions none{};
  Exchange(&none);
  there_ = std::move(there_).resume();
  Exchange(&none);
}

void Fiber::Wait() {
  Exceptions none{};
  Exchange(&none);
  back_ = std::move(back_).resume();
  Exchange(&none);
}

}  // namespace lopt
