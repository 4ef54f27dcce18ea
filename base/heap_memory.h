#pragma once

#include <string_view>

#include "lopt/base/buffer.h"

namespace lopt {

// Memory of the process: the host's, and that of a device which the host emulates. The latter is
// the same bytes, but only the device's code uses them in place.
class HeapMemory : public Memory {
 public:
  // `name` lives as long as this.
  HeapMemory(std::string_view name, bool is_host) : name_(name), is_host_(is_host) {}

  std::string_view name() const override { return name_; }
  bool IsHost() const override { return is_host_; }

 private:
  std::byte* Allocate(size_t size) const override;
  void Free(std::byte* bytes, size_t size) const override;
  void Copy(const std::byte* from, std::byte* to, size_t size) const override;
  void CopyFromHost(const std::byte* from, std::byte* to, size_t size) const override;
  void CopyToHost(const std::byte* from, std::byte* to, size_t size) const override;

  std::string_view name_;
  bool is_host_;
};

}  // namespace lopt
