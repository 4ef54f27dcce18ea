#pragma once

#include <cuda_runtime.h>

#include <type_traits>
#include <variant>

#include "lopt/base/cuda.cuh"
#include "lopt/estimators/device_kernels.h"

namespace lopt {

// Everything that a kernel is given.
template <class Task, class Rule>
struct KernelParameters {
  DeviceWindow window;
  typename Task::Args task;
  typename Rule::Args rule;
};

// One block on a multiprocessor, which its memory fills: so it may have all registers.
template <class Task, class Rule>
__global__ void __launch_bounds__(kMostThreads, 1)
    WindowKernel(const __grid_constant__ KernelParameters<Task, Rule> parameters) {
  const Block block(static_cast<int>(blockDim.x), nullptr);
  DeviceReplica<Task, Rule>(block, parameters.window, parameters.task, parameters.rule, blockIdx.x)
      .Run();
}

template <class Task, class Rule>
void LaunchWindow(const Device& device, const KernelParameters<Task, Rule>& parameters) {
  const DeviceWindow& window = parameters.window;
  const auto kernel = WindowKernel<Task, Rule>;
  const size_t shared = static_cast<size_t>(window.plan.total) * sizeof(float);
  // The limit is one of kernel and GPU, not of the launch: every thread sets the same, or one would
  // lower it below what another is about to launch with.
  LOPT_CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(device.shared_memory())));
  kernel<<<static_cast<unsigned>(window.replicas), static_cast<unsigned>(window.threads), shared,
           cudaStreamPerThread>>>(parameters);
  LOPT_CHECK_CUDA(cudaGetLastError());
  LOPT_CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
}

// The kernels of one rule and all tasks, on `device`, the present GPU. Each rule has a file
// window_cuda_<rule>.cu, which instantiates this, so that they are compiled side by side.
template <class Rule>
void LaunchRule(const Device& device, const DeviceTask& task, const typename Rule::Args& rule,
                const DeviceWindow& window) {
  std::visit(
      [&](const auto& of_task) {
        using Task = typename std::decay_t<decltype(of_task)>::Functions;
        const KernelParameters<Task, Rule> parameters = {window, of_task.args, rule};
        LaunchWindow(device, parameters);
      },
      task);
}

}  // namespace lopt
