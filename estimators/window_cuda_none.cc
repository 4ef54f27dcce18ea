// In place of the .cu files where there is no CUDA compiler.
#include "lopt/base/error.h"
#include "lopt/estimators/device_kernels.h"

namespace lopt {

void RunCudaWindow(const Device& device, const DeviceTask&, const DeviceRule&,
                   const DeviceWindow&) {
  Fail("device '{}': lopt was built without CUDA", device.name());
}

void RunCudaGradient(const Device& device, const DeviceGradient&) {
  Fail("device '{}': lopt was built without CUDA", device.name());
}

}  // namespace lopt
