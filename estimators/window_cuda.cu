#include <type_traits>
#include <variant>

#include "lopt/base/cuda.cuh"
#include "lopt/estimators/device_kernels.h"

namespace lopt {

// window_cuda.cuh.
template <class Rule>
void LaunchRule(const Device& device, const DeviceTask& task, const typename Rule::Args& rule,
                const DeviceWindow& window);

void RunCudaWindow(const Device& device, const DeviceTask& task, const DeviceRule& rule,
                   const DeviceWindow& window) {
  LOPT_CHECK_CUDA(cudaSetDevice(CudaIndexOf(device)));
  std::visit(
      [&](const auto& of_rule) {
        using Rule = typename std::decay_t<decltype(of_rule)>::Functions;
        LaunchRule<Rule>(device, task, of_rule.args, window);
      },
      rule);
}

}  // namespace lopt
