#pragma once

// For the one source file of a program that replaces operator new and delete, with and without an
// alignment: all their other forms, by these. With some of them left to the standard library, a
// sanitizer's would allocate what these free. The four are to be [[gnu::noinline]]: g++ 12 takes
// malloc and free inlined into some of the forms, not into others, for a mismatch.

#include <cstddef>
#include <new>

void* operator new[](size_t size) { return operator new(size); }
void* operator new[](size_t size, std::align_val_t alignment) {
  return operator new(size, alignment);
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  try {
    return operator new(size, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](size_t size, const std::nothrow_t& nothrow) noexcept {
  return operator new(size, nothrow);
}
void* operator new[](size_t size, std::align_val_t alignment,
                     const std::nothrow_t& nothrow) noexcept {
  return operator new(size, alignment, nothrow);
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
void operator delete(void* memory, size_t, std::align_val_t alignment) noexcept {
  operator delete(memory, alignment);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { operator delete(memory); }
void operator delete(void* memory, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  operator delete(memory, alignment);
}
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete[](void* memory, size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory, std::align_val_t alignment) noexcept {
  operator delete(memory, alignment);
}
void operator delete[](void* memory, size_t, std::align_val_t alignment) noexcept {
  operator delete(memory, alignment);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept { operator delete(memory); }
void operator delete[](void* memory, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  operator delete(memory, alignment);
}
