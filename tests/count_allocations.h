#pragma once

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "lopt/base/new_forms-inl.h"

// Counts the allocations of the program that includes this, in its one source file: those of
// operator new and, where the C library is glibc and no sanitizer has its functions, of malloc,
// which Eigen calls, and its kin.
inline std::atomic<int64_t> allocations = 0;
// Bytes that operator new has given and nobody has given back.
inline std::atomic<int64_t> allocated_bytes = 0;

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
inline constexpr bool kCountsMalloc = true;

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) noexcept {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) noexcept {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) noexcept {
  ++allocations;
  return __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
  ++allocations;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) noexcept {
  ++allocations;
  void* const given = __libc_memalign(alignment, size);
  if (given == nullptr) return ENOMEM;
  *memory = given;
  return 0;
}
}  // extern "C"
#else
inline constexpr bool kCountsMalloc = false;
#endif

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
  if (!kCountsMalloc) ++allocations;
  return Counted(std::malloc(size == 0 ? 1 : size));
}
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  if (!kCountsMalloc) ++allocations;
  const auto align = static_cast<size_t>(alignment);
  return Counted(std::aligned_alloc(align, (size + align - 1) / align * align));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { FreeCounted(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  FreeCounted(memory);
}
