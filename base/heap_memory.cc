#include "lopt/base/heap_memory.h"

#include <cstring>
#include <new>

#include "lopt/base/error.h"

namespace lopt {
namespace {

constexpr std::align_val_t kHeapAlignment{64};

}  // namespace

std::byte* HeapMemory::Allocate(size_t size) const {
  auto* bytes = static_cast<std::byte*>(::operator new(size, kHeapAlignment, std::nothrow));
  if (bytes == nullptr) Fail("no room for {} bytes in memory '{}'", size, name_);
  std::memset(bytes, 0, size);
  return bytes;
}

void HeapMemory::Free(std::byte* bytes, size_t) const { ::operator delete(bytes, kHeapAlignment); }

void HeapMemory::Copy(const std::byte* from, std::byte* to, size_t size) const {
  std::memcpy(to, from, size);
}

void HeapMemory::CopyFromHost(const std::byte* from, std::byte* to, size_t size) const {
  Copy(from, to, size);
}

void HeapMemory::CopyToHost(const std::byte* from, std::byte* to, size_t size) const {
  Copy(from, to, size);
}

}  // namespace lopt
