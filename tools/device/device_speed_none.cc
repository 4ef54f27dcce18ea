// In place of device_speed.cu where there is no CUDA compiler.
#include "lopt/base/error.h"
#include "lopt/tools/device/device_speed.h"

namespace lopt {

DeviceSpeed MeasureCudaSpeed(const Device& device) {
  Fail("device '{}': lopt was built without CUDA", device.name());
}

}  // namespace lopt
