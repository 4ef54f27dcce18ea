#pragma once

#include <cuda_runtime.h>

#include <cstring>
#include <string>

#include "lopt/base/cuda.h"

namespace lopt {

// Throws Error that names the file and line unless `status`, what a function of CUDA's runtime
// returned, is success.
inline void CheckCuda(cudaError_t status, const char* file, int line) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // else the next check would find it again
  const char* slash = std::strrchr(file, '/');
  ThrowCudaError(std::string("cuda: ") + cudaGetErrorName(status) + " (" +
                 cudaGetErrorString(status) + ") at " + (slash == nullptr ? file : slash + 1) +
                 ":" + std::to_string(line));
}
#define LOPT_CHECK_CUDA(...) ::lopt::CheckCuda((__VA_ARGS__), __FILE__, __LINE__)

// The number of a GPU, of a device of the kind kCuda.
int CudaIndexOf(const Device& device);

}  // namespace lopt
