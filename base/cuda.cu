#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "lopt/base/cuda.cuh"
#include "lopt/base/cuda.h"

namespace lopt {
namespace {

// Each call is done when it returns, so that any thread may go on with what another left.
class GpuMemory : public Memory {
 public:
  explicit GpuMemory(int index) : index_(index), name_("cuda:" + std::to_string(index)) {
    cudaMemPool_t pool;
    LOPT_CHECK_CUDA(cudaDeviceGetDefaultMemPool(&pool, index));
    uint64_t keep = UINT64_MAX;  // what is freed stays with the process
    LOPT_CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  }
  std::string_view name() const override { return name_; }

 private:
  std::byte* Allocate(size_t size) const override {
    LOPT_CHECK_CUDA(cudaSetDevice(index_));
    void* bytes = nullptr;
    const cudaError_t status = cudaMallocAsync(&bytes, size, cudaStreamPerThread);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      size_t free = 0;
      size_t total = 0;
      LOPT_CHECK_CUDA(cudaMemGetInfo(&free, &total));
      ThrowCudaError("device '" + name_ + "': no room for " + std::to_string(size) + " bytes, " +
                     std::to_string(free) + " of " + std::to_string(total) + " are free");
    }
    LOPT_CHECK_CUDA(status);
    LOPT_CHECK_CUDA(cudaMemsetAsync(bytes, 0, size, cudaStreamPerThread));
    LOPT_CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
    return static_cast<std::byte*>(bytes);
  }
  // At the end of the process the runtime may be gone before the last buffer: nobody is told.
  void Free(std::byte* bytes, size_t) const override {
    cudaSetDevice(index_);
    cudaFreeAsync(bytes, cudaStreamPerThread);
  }
  void Copy(const std::byte* from, std::byte* to, size_t size) const override {
    CopyAs(cudaMemcpyDeviceToDevice, from, to, size);
  }
  void CopyFromHost(const std::byte* from, std::byte* to, size_t size) const override {
    CopyAs(cudaMemcpyHostToDevice, from, to, size);
  }
  void CopyToHost(const std::byte* from, std::byte* to, size_t size) const override {
    CopyAs(cudaMemcpyDeviceToHost, from, to, size);
  }
  void CopyAs(cudaMemcpyKind kind, const std::byte* from, std::byte* to, size_t size) const {
    LOPT_CHECK_CUDA(cudaSetDevice(index_));
    LOPT_CHECK_CUDA(cudaMemcpyAsync(to, from, size, kind, cudaStreamPerThread));
    LOPT_CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
  }

  int index_;
  std::string name_;
};

// What the device's code is looked for by.
__global__ void Probe() {}

// Whether the GPU that a call with this status was about runs nothing that was compiled.
bool LacksCode(cudaError_t status) {
  return status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
         status == cudaErrorInvalidKernelImage || status == cudaErrorUnsupportedPtxVersion;
}

class Gpu : public Device {
 public:
  explicit Gpu(int index) : index_(index), memory_(index) {
    cudaDeviceProp properties;
    LOPT_CHECK_CUDA(cudaGetDeviceProperties(&properties, index));
    shared_memory_ = properties.sharedMemPerBlockOptin;
    model_ = properties.name;
    description_ = model_ + ", compute capability " + std::to_string(properties.major) + "." +
                   std::to_string(properties.minor) + ", " +
                   std::to_string(properties.multiProcessorCount) + " multiprocessors, " +
                   std::to_string(properties.totalGlobalMem >> 20) + " MiB";
    RequireCode(properties.major * 10 + properties.minor);
  }

  Kind kind() const override { return Kind::kCuda; }
  std::string_view name() const override { return memory_.name(); }
  std::string model() const override { return model_; }
  std::string description() const override { return description_; }
  const Memory& memory() const override { return memory_; }
  size_t shared_memory() const override { return shared_memory_; }
  int index() const { return index_; }

 private:
  // Throws Error unless kernels were compiled for a GPU like this one, as CMake names them.
  void RequireCode(int architecture) const {
    LOPT_CHECK_CUDA(cudaSetDevice(index_));
    cudaFuncAttributes attributes;
    const cudaError_t status =
        cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&Probe));
    if (LacksCode(status)) {
      cudaGetLastError();
      ThrowCudaError("device '" + std::string(name()) + "': lopt has no kernels for it (" +
                     description_ + "): " + cudaGetErrorString(status) +
                     "; build lopt with -DLOPT_CUDA_ARCHITECTURES=" + std::to_string(architecture) +
                     ", or choose the device 'cpu'");
    }
    LOPT_CHECK_CUDA(status);
  }

  int index_;
  GpuMemory memory_;
  size_t shared_memory_;
  std::string model_;
  std::string description_;
};

}  // namespace

CudaDevices FindCudaDevices() {
  CudaDevices found;
  int version = 0;
  LOPT_CHECK_CUDA(cudaRuntimeGetVersion(&version));
  found.version = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  const cudaError_t status = cudaGetDeviceCount(&found.count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    found.count = 0;
    found.reason = std::string("CUDA finds no GPU: ") + cudaGetErrorString(status);
  } else if (found.count == 0) {
    found.reason = "CUDA finds no GPU";
  }
  return found;
}

const Device& CudaDevice(int index) {
  // Made when it is first asked for, so that a process opens no other; never destroyed: buffers may
  // outlive what is destroyed at the end of the process.
  static std::mutex mutex;
  static auto* gpus = new std::map<int, std::unique_ptr<Gpu>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Gpu>& gpu = (*gpus)[index];
  if (gpu == nullptr) gpu = std::make_unique<Gpu>(index);
  return *gpu;
}

int CudaIndexOf(const Device& device) { return static_cast<const Gpu&>(device).index(); }

}  // namespace lopt
