#include "base/device.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "base/cuda.h"
#include "base/emulated_device.h"
#include "base/error.h"

namespace lopt {
namespace {

constexpr std::align_val_t kEmulatedAlignment{64};

// Of the host, but copied to and from as a device's is.
class EmulatedMemory : public Memory {
 public:
  std::string_view name() const override { return "emulated"; }

 private:
  std::byte* Allocate(size_t size) const override {
    auto* bytes = static_cast<std::byte*>(::operator new(size, kEmulatedAlignment));
    std::memset(bytes, 0, size);
    return bytes;
  }
  void Free(std::byte* bytes, size_t) const override {
    ::operator delete(bytes, kEmulatedAlignment);
  }
  void Copy(const std::byte* from, std::byte* to, size_t size) const override {
    std::memcpy(to, from, size);
  }
  void CopyFromHost(const std::byte* from, std::byte* to, size_t size) const override {
    Copy(from, to, size);
  }
  void CopyToHost(const std::byte* from, std::byte* to, size_t size) const override {
    Copy(from, to, size);
  }
};

// The number in "cuda" and "cuda:<n>"; none of other names.
std::optional<int> CudaIndex(std::string_view name) {
  if (name == "cuda") return 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  name.remove_prefix(5);
  int index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size() || index < 0) return std::nullopt;
  return index;
}

}  // namespace

EmulatedDevice::EmulatedDevice(size_t shared_memory, ThreadOrder order)
    : shared_memory_(shared_memory), order_(order), memory_(std::make_unique<EmulatedMemory>()) {}

EmulatedDevice::~EmulatedDevice() = default;

const Device* FindDevice(std::string_view name) {
  static const EmulatedDevice emulated;
  if (name == "cpu") return nullptr;
  if (name == "emulated") return &emulated;
  const std::optional<int> index = CudaIndex(name);
  Require(index.has_value(),
          "device: '{}' is none; choose cpu, cuda, cuda:<number of a GPU> or emulated", name);
  const CudaDevices found = FindCudaDevices();
  Require(found.count > 0, "device: there is no '{}': {}; choose cpu", name, found.reason);
  Require(*index < found.count, "device: there is no '{}', the GPUs are cuda:0 to cuda:{}", name,
          found.count - 1);
  return &CudaDevice(*index);
}

std::string ModelOf(const Device* device) { return device == nullptr ? "cpu" : device->model(); }

void ThrowCudaError(const std::string& message) { throw Error(message); }

const std::byte* DeviceConstants::KeepBytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) return nullptr;
  Buffer host(bytes.size());
  std::ranges::copy(bytes, host.host().begin());
  kept_.push_back(host.To(memory_));
  return std::as_const(kept_.back()).data();
}

}  // namespace lopt
