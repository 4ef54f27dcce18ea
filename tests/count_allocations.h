#pragma once

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "lopt/base/new_forms-inl.h"

// Counts every allocation of the program that includes this, in its one source file.
inline std::atomic<int64_t> allocations = 0;
// Bytes that are allocated now.
inline std::atomic<int64_t> allocated_bytes = 0;

inline void* Counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  allocated_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  return memory;
}
inline void FreeCounted(void* memory) {
  allocated_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  return Counted(std::malloc(size == 0 ? 1 : size));
}
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  ++allocations;
  const auto align = static_cast<size_t>(alignment);
  return Counted(std::aligned_alloc(align, (size + align - 1) / align * align));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { FreeCounted(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  FreeCounted(memory);
}
