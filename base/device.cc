#include "lopt/base/device.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include "lopt/base/cuda.h"
#include "lopt/base/emulated_device.h"
#include "lopt/base/error.h"
#include "lopt/base/heap_memory.h"

namespace lopt {
namespace {

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
    : shared_memory_(shared_memory),
      order_(order),
      memory_(std::make_unique<HeapMemory>("emulated", false)) {}

EmulatedDevice::~EmulatedDevice() = default;

void CheckDeviceName(std::string_view name) {
  Require(name == "cpu" || name == "emulated" || CudaIndex(name).has_value(),
          "device: '{}' is none; choose cpu, cuda, cuda:<number of a GPU> or emulated", name);
}

const Device* FindDevice(std::string_view name) {
  CheckDeviceName(name);
  // Never destroyed: buffers may outlive what is destroyed at the end of the process.
  static const auto* const emulated = new EmulatedDevice;
  if (name == "cpu") return nullptr;
  if (name == "emulated") return emulated;
  const std::optional<int> index = CudaIndex(name);
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
