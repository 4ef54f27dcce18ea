#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lopt/base/device.h"
#include "lopt/tools/device/device_speed.h"

namespace lopt {

// Windows of inner steps on a device.
struct DeviceBenchResult {
  std::string name;
  int64_t replicas = 0;
  int64_t steps = 0;            // of a window
  int64_t launches = 0;         // of kernels in a window
  double window_seconds = 0;    // by the clock, all that the host does for it included
  double steps_per_second = 0;  // inner steps of all replicas
  double gflops = 0;
  int64_t shared_bytes = 0;  // memory of a block
  bool resident = false;     // whether a replica's params and state are in it
  // Why nothing was timed: what it needs is not on this machine. Else empty.
  std::string left_out = {};
};

// Times the windows of each workload: the median of `repeats` after a first one. `each` gets them
// one by one. An emulated device gets a hundredth of the replicas.
void BenchDevice(const Device& device, int repeats,
                 const std::function<void(const DeviceBenchResult&)>& each);

}  // namespace lopt
