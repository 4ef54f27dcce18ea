#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lopt {

// A place where bytes can be: the host's memory, or that of a device, which only the device's own
// code reads and writes in place. Each lives as long as the process. Thread-safe.
class Memory {
 public:
  virtual ~Memory() = default;
  // What messages call it.
  virtual std::string_view name() const = 0;  // "host", "cuda:0"
  // Whether any code may read and write it in place.
  virtual bool IsHost() const { return false; }

 private:
  friend class Buffer;
  // `size` > 0 bytes of zeros, 64-byte aligned. Throws Error if there is no room.
  virtual std::byte* Allocate(size_t size) const = 0;
  virtual void Free(std::byte* bytes, size_t size) const = 0;
  // Copies within this memory, from the host's and to the host's; done when it returns.
  virtual void Copy(const std::byte* from, std::byte* to, size_t size) const = 0;
  virtual void CopyFromHost(const std::byte* from, std::byte* to, size_t size) const = 0;
  virtual void CopyToHost(const std::byte* from, std::byte* to, size_t size) const = 0;
};

// The host's. A module that is opened at run time may have its own; both are the same memory.
const Memory& HostMemory();

// Bytes that it owns, in one memory. A value: copies are deep and in the same memory, moves copy
// nothing and leave an empty buffer behind, equal buffers hold the same bytes, wherever they are.
class Buffer {
 public:
  // No bytes.
  Buffer() = default;
  // Zeros.
  explicit Buffer(size_t size, const Memory& memory = HostMemory());
  // A copy in the same memory.
  Buffer(const Buffer& other);
  // The bytes of another.
  Buffer(Buffer&& other) noexcept;
  // Takes the bytes of another or of its copy.
  Buffer& operator=(Buffer other) noexcept;
  ~Buffer();

  // Bytes.
  size_t size() const { return size_; }
  // Where they are.
  const Memory& memory() const { return *memory_; }
  // Throws Error unless the bytes are in the host's memory.
  std::span<std::byte> host();
  // The same of a buffer that stays as it is.
  std::span<const std::byte> host() const;
  // Where the bytes are, for code of their memory's device.
  std::byte* data() { return data_; }
  // The same of a buffer that stays as it is.
  const std::byte* data() const { return data_; }
  // A copy in another memory.
  Buffer To(const Memory& memory) const;
  // Copies `size` bytes of another buffer, from its byte `from` on, to those from byte `to` on.
  // Throws Error if one of both does not have them. The memories may differ.
  void CopyFrom(const Buffer& other, size_t from, size_t to, size_t size);

  // Whether both hold the same bytes.
  bool operator==(const Buffer& other) const;

 private:
  const Memory* memory_ = &HostMemory();
  std::byte* data_ = nullptr;  // null if the size is 0
  size_t size_ = 0;
};

}  // namespace lopt
