#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/buffer.h"

namespace lopt {

// A device that runs kernels in place of the processor. It outlives all that is in its memory.
// Thread-safe.
class Device {
 public:
  // kEmulated: the kernels' functions run on the host, for tests and checks; slow.
  enum class Kind { kCuda, kEmulated };

  virtual ~Device() = default;
  // What it is.
  virtual Kind kind() const = 0;
  virtual std::string_view name() const = 0;  // as FindDevice takes it: "cuda:0", "emulated"
  // What the bits that it computes depend on: "NVIDIA H200"; "emulated".
  virtual std::string model() const = 0;
  // For people: the model and its size.
  virtual std::string description() const = 0;
  // Where what its kernels read and write is.
  virtual const Memory& memory() const = 0;
  // Of one block of threads, in bytes.
  virtual size_t shared_memory() const = 0;
};

// The device of a name: "cuda" and "cuda:0" are the first NVIDIA GPU, "cuda:1" the second,
// "emulated" runs a device's kernels on the host; null for "cpu", which is none. Throws Error that
// says what there is if there is no such device.
const Device* FindDevice(std::string_view name);

// Throws Error, with the valid choices, unless FindDevice may know such a name on some machine.
void CheckDeviceName(std::string_view name);

// What Device::model() says; "cpu" of null, the processor.
std::string ModelOf(const Device* device);

// The devices that FindDevice finds beside "cpu" and "emulated": how many GPUs, and where there are
// none the reason, such as "built without CUDA".
struct CudaDevices {
  int count = 0;             // GPUs
  std::string reason = {};   // why there are none
  std::string version = {};  // of CUDA, "13.0"; empty: built without
};
// Looks for them.
CudaDevices FindCudaDevices();

// Numbers that kernels read, kept in a device's memory as long as this lives.
class DeviceConstants {
 public:
  // They are kept in `memory`, which outlives this.
  explicit DeviceConstants(const Memory& memory) : memory_(memory) {}

  // A copy of `values` there; null if there are none.
  template <class T>
  const T* Keep(std::span<const T> values) {
    return reinterpret_cast<const T*>(KeepBytes(std::as_bytes(values)));
  }
  // The same.
  template <class T>
  const T* Keep(const std::vector<T>& values) {
    return Keep(std::span<const T>(values));
  }

 private:
  const std::byte* KeepBytes(std::span<const std::byte> bytes);

  const Memory& memory_;
  std::deque<Buffer> kept_;
};

}  // namespace lopt
