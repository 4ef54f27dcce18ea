#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "lopt/base/cuda.cuh"
#include "lopt/tools/device/device_speed.h"

namespace lopt {
namespace {

constexpr int kThreads = 256;
constexpr int kChains = 16;  // sums that do not wait for each other
constexpr int kRounds = 4096;
constexpr int kRepeats = 10;

__global__ void __launch_bounds__(kThreads) MultiplyAdd(float factor, float* out) {
  float sums[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) sums[i] = static_cast<float>(threadIdx.x + i);
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) sums[i] = fmaf(sums[i], factor, 1.0f);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += sums[i];
  if (sum == -1.0f) *out = sum;  // never, but the compiler cannot know
}

__global__ void Nothing() {}

// The least time of a few calls, in seconds.
template <class Call>
double LeastSeconds(const Call& call) {
  double least = 1e30;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call();
    LOPT_CHECK_CUDA(cudaGetLastError());
    LOPT_CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    least = std::min(least, passed.count());
  }
  return least;
}

}  // namespace

DeviceSpeed MeasureCudaSpeed(const Device& device) {
  const int index = CudaIndexOf(device);
  LOPT_CHECK_CUDA(cudaSetDevice(index));
  int multiprocessors = 0;
  LOPT_CHECK_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, index));
  DeviceSpeed speed;
  const int blocks = multiprocessors * 16;
  Buffer out(sizeof(float), device.memory());
  const double flop = 2.0 * kChains * kRounds * kThreads * blocks;
  speed.gflops = flop / 1e9 / LeastSeconds([&] {
                   MultiplyAdd<<<blocks, kThreads, 0, cudaStreamPerThread>>>(
                       0.999f, reinterpret_cast<float*>(out.data()));
                 });
  constexpr size_t kBytes = size_t{1} << 29;
  const Buffer from(kBytes, device.memory());
  Buffer to(kBytes, device.memory());
  speed.gigabytes = 2.0 * kBytes / 1e9 / LeastSeconds([&] { to.CopyFrom(from, 0, 0, kBytes); });
  speed.launch_seconds = LeastSeconds([] { Nothing<<<1, 32, 0, cudaStreamPerThread>>>(); });
  return speed;
}

}  // namespace lopt
