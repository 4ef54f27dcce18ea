#include <cuda_runtime.h>

#include "lopt/base/cuda.cuh"
#include "lopt/estimators/device_kernels.h"

namespace lopt {
namespace {

__global__ void __launch_bounds__(kGradientThreads)
    SquareAccumulatorKernel(const __grid_constant__ DeviceGradient of) {
  SquareAccumulator(Block(kGradientThreads, nullptr), of, blockIdx.x);
}

__global__ void __launch_bounds__(kGradientThreads)
    SumTileKernel(const __grid_constant__ DeviceGradient of) {
  SumTile(Block(kGradientThreads, nullptr), of, blockIdx.x);
}

}  // namespace

void RunCudaGradient(const Device& device, const DeviceGradient& of) {
  LOPT_CHECK_CUDA(cudaSetDevice(CudaIndexOf(device)));
  constexpr size_t kShared = kGradientFloats * sizeof(float);
  if (of.accumulator != nullptr) {
    SquareAccumulatorKernel<<<static_cast<unsigned>(of.pairs), kGradientThreads, kShared,
                              cudaStreamPerThread>>>(of);
    LOPT_CHECK_CUDA(cudaGetLastError());
  }
  SumTileKernel<<<static_cast<unsigned>(TilesOf(of.size)), kGradientThreads, kShared,
                  cudaStreamPerThread>>>(of);
  LOPT_CHECK_CUDA(cudaGetLastError());
  LOPT_CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
}

}  // namespace lopt
