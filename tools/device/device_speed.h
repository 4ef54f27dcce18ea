#pragma once

#include "lopt/base/device.h"

namespace lopt {

// What a device can do at most, measured.
struct DeviceSpeed {
  double gflops = 0;          // fused multiply-adds in float32, two operations each
  double gigabytes = 0;       // a second, read and written by copies inside the device's memory
  double launch_seconds = 0;  // from the start of an empty kernel until the host knows of its end
};

// Of a device of the kind kCuda.
DeviceSpeed MeasureCudaSpeed(const Device& device);

}  // namespace lopt
