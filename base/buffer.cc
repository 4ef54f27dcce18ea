#include "lopt/base/buffer.h"

#include <algorithm>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/heap_memory.h"

namespace lopt {

const Memory& HostMemory() {
  // Never destroyed: buffers may outlive what is destroyed at the end of the process.
  static const auto* const host = new HeapMemory("host", true);
  return *host;
}

Buffer::Buffer(size_t size, const Memory& memory) : memory_(&memory) {
  if (size > 0) {
    data_ = memory.Allocate(size);
    size_ = size;
  }
}

Buffer::Buffer(const Buffer& other) : Buffer(other.size_, *other.memory_) {
  if (size_ > 0) {
    memory_->Copy(other.data_, data_, size_);
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : memory_(other.memory_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) {
    memory_->Free(data_, size_);
  }
}

std::span<std::byte> Buffer::host() {
  Require(memory_->IsHost(),
          "{} bytes in memory '{}' were used as if they were in memory 'host'; copy them there "
          "first",
          size_, memory_->name());
  return {data_, size_};
}

std::span<const std::byte> Buffer::host() const { return const_cast<Buffer*>(this)->host(); }

Buffer Buffer::To(const Memory& memory) const {
  if (memory_->IsHost() && memory.IsHost()) {
    return *this;
  }
  Buffer copy(size_, memory);
  copy.CopyFrom(*this, 0, 0, size_);
  return copy;
}

void Buffer::CopyFrom(const Buffer& other, size_t from, size_t to, size_t size) {
  Require(from <= other.size_ && size <= other.size_ - from && to <= size_ && size <= size_ - to,
          "buffer: {} bytes from {} of {} on, to {} of {}", size, from, other.size_, to, size_);
  if (size == 0) {
    return;
  }
  const std::byte* source = other.data_ + from;
  if (memory_ == other.memory_ || (memory_->IsHost() && other.memory_->IsHost())) {
    memory_->Copy(source, data_ + to, size);
  } else if (memory_->IsHost()) {
    other.memory_->CopyToHost(source, data_ + to, size);
  } else if (other.memory_->IsHost()) {
    memory_->CopyFromHost(source, data_ + to, size);
  } else {
    Buffer between(size);
    between.CopyFrom(other, from, 0, size);
    CopyFrom(between, 0, to, size);
  }
}

bool Buffer::operator==(const Buffer& other) const {
  if (size_ != other.size_) {
    return false;
  }
  if (!memory_->IsHost()) {
    return To(HostMemory()) == other;
  }
  if (!other.memory_->IsHost()) {
    return *this == other.To(HostMemory());
  }
  return std::ranges::equal(host(), other.host());
}

}  // namespace lopt
