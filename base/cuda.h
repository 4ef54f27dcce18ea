#pragma once

#include <string>

#include "lopt/base/device.h"

namespace lopt {

// GPU number `index` of those that FindCudaDevices counts.
const Device& CudaDevice(int index);

// Throws Error. CUDA's compiler does not read base/error.h.
[[noreturn]] void ThrowCudaError(const std::string& message);

}  // namespace lopt
