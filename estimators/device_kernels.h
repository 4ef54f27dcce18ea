#pragma once

#include <cstdint>
#include <variant>

#include "lopt/base/device.h"
#include "lopt/estimators/gradient_device.h"
#include "lopt/estimators/window_device.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt_device.h"
#include "lopt/lopt/celo2/celo2_device.h"
#include "lopt/lopt/mlp/mlp_lopt_device.h"
#include "lopt/tasks/given_gradient_device.h"
#include "lopt/tasks/image/image_mlp_device.h"
#include "lopt/tasks/quadratic/quadratic_device.h"

namespace lopt {

// The tasks and rules of a device's kernels: any task of the one list runs under any rule of the
// other.
template <class F>
struct DeviceFunctions {
  using Functions = F;
  typename F::Args args;
};

using DeviceTask = std::variant<DeviceFunctions<QuadraticDevice>, DeviceFunctions<ImageMlpDevice>,
                                DeviceFunctions<GivenGradientDevice>>;
using DeviceRule =
    std::variant<DeviceFunctions<MlpLoptDevice<16>>, DeviceFunctions<MlpLoptDevice<32>>,
                 DeviceFunctions<MlpLoptDevice<64>>, DeviceFunctions<AdafacMlpLoptDevice<4>>,
                 DeviceFunctions<AdafacMlpLoptDevice<32>>, DeviceFunctions<AdafacMlpLoptDevice<64>>,
                 DeviceFunctions<Celo2Device>>;

// Runs a window, whose pointers are to the device's memory, and waits for its end. Throws Error
// that says what the device found wrong.
void RunWindowKernel(const Device& device, const DeviceTask& task, const DeviceRule& rule,
                     const DeviceWindow& window);

// The same for a device of the kind kCuda.
void RunCudaWindow(const Device& device, const DeviceTask& task, const DeviceRule& rule,
                   const DeviceWindow& window);

// The same on the host, the threads of each phase in this order.
void RunEmulatedWindow(const DeviceTask& task, const DeviceRule& rule, const DeviceWindow& window,
                       ThreadOrder order);

// Adds up a gradient, whose pointers are to the device's memory, and waits for its end. Throws
// Error that says what the device found wrong.
void RunGradientKernels(const Device& device, const DeviceGradient& of);

// The same for a device of the kind kCuda.
void RunCudaGradient(const Device& device, const DeviceGradient& of);

}  // namespace lopt
