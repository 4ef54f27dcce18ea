#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "lopt/base/block_device.h"
#include "lopt/base/device.h"

namespace lopt {

// Runs a device's kernels on the host, each phase's threads in this order, with so many bytes of
// memory for a block; by default as many as an H100 has.
class EmulatedDevice : public Device {
 public:
  // A device of its own, with a memory of its own.
  explicit EmulatedDevice(size_t shared_memory = 227 * 1024,
                          ThreadOrder order = ThreadOrder::kForward);
  ~EmulatedDevice() override;

  Kind kind() const override { return Kind::kEmulated; }
  std::string_view name() const override { return "emulated"; }
  std::string model() const override { return "emulated"; }
  std::string description() const override { return "a device's kernels, run on the host"; }
  const Memory& memory() const override { return *memory_; }
  size_t shared_memory() const override { return shared_memory_; }
  // The order in which a phase's threads run.
  ThreadOrder order() const { return order_; }

 private:
  size_t shared_memory_;
  ThreadOrder order_;
  std::unique_ptr<const Memory> memory_;
};

}  // namespace lopt
