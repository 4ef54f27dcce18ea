#include "lopt/tools/check/count_allocations.h"

#include <cstddef>
#include <cstdlib>
#include <new>

#include "lopt/base/new_forms-inl.h"

namespace {

thread_local lopt::checks::Allocations allocations_of_thread;

void* Counted(void* memory, size_t size) {
  if (memory == nullptr) throw std::bad_alloc();
  ++allocations_of_thread.count;
  allocations_of_thread.bytes += static_cast<int64_t>(size);
  return memory;
}

}  // namespace

// The program's own, in place of the standard library's: those of malloc, counted.
[[gnu::noinline]] void* operator new(size_t size) {
  return Counted(std::malloc(size == 0 ? 1 : size), size);
}
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  return Counted(std::aligned_alloc(align, (size + align - 1) / align * align), size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

namespace lopt {

checks::Allocations CountAllocations() { return allocations_of_thread; }

}  // namespace lopt
