#include "lopt/estimators/device_gradient.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/estimators/device_kernels.h"
#include "lopt/estimators/device_launch.h"

namespace lopt {
namespace {

template <class T>
std::vector<T> ToHost(const Buffer& buffer) {
  std::vector<T> numbers(buffer.size() / sizeof(T));
  const Buffer host = buffer.To(HostMemory());
  std::ranges::copy(host.host(), std::as_writable_bytes(std::span(numbers)).begin());
  return numbers;
}

}  // namespace

PairsGradient GradientOnDevice(const Device& device, const Perturbations& perturbations,
                               const PairsLosses& losses, Array* accumulator) {
  const int64_t pairs = perturbations.pairs();
  const int64_t size = perturbations.dimension();
  const double std = perturbations.std();
  constexpr size_t kNeeded = kGradientFloats * sizeof(float);
  Require(kNeeded <= device.shared_memory(),
          "device '{}': the gradient takes {} bytes of the {} that a block has", device.name(),
          kNeeded, device.shared_memory());
  Require(std::ssize(losses) == pairs, "device gradient: losses of {} pairs, wanted {}",
          losses.size(), pairs);
  Require(accumulator == nullptr || &accumulator->buffer().memory() == &device.memory(),
          "device gradient: the sums are in the memory '{}', wanted '{}'",
          accumulator == nullptr ? "" : accumulator->buffer().memory().name(),
          device.memory().name());
  std::vector<DeviceLosses> in_a_row;
  std::vector<int64_t> first = {0};
  for (int64_t n = 0; n < pairs; ++n) {
    for (const LossGroup& of : losses[static_cast<size_t>(n)]) {
      in_a_row.push_back(
          {.key = perturbations.KeyOf(n, of.at), .weight = of.weight, .after = of.after});
    }
    first.push_back(std::ssize(in_a_row));
  }
  DeviceConstants inputs(device.memory());
  const auto room = [&](int64_t count, size_t bytes) {
    return Buffer(static_cast<size_t>(count) * bytes, device.memory());
  };
  Buffer gradient = room(size, sizeof(float));
  Buffer squares = room(TilesOf(size), sizeof(double));
  Buffer accumulator_squares = room(accumulator == nullptr ? 0 : pairs, sizeof(double));
  RunGradientKernels(
      device, {.pairs = pairs,
               .size = size,
               .std = static_cast<float>(std),
               .divisor = 2 * std * std * static_cast<double>(pairs),
               .losses = inputs.Keep(in_a_row),
               .first_losses = inputs.Keep(first),
               .accumulator = accumulator == nullptr ? nullptr : FloatsOf(accumulator->buffer()),
               .gradient = FloatsOf(gradient),
               .squares = reinterpret_cast<double*>(squares.data()),
               .accumulator_squares = reinterpret_cast<double*>(accumulator_squares.data())});
  PairsGradient result;
  const std::vector<float> row = ToHost<float>(gradient);
  result.gradient = Eigen::Map<const Eigen::VectorXf>(row.data(), size);
  for (const double square : ToHost<double>(squares)) result.squares += square;
  result.squares /= 4 * std * std * std * std;
  result.accumulator_norms = ToHost<double>(accumulator_squares);
  for (double& norm : result.accumulator_norms) norm = std::sqrt(norm);
  return result;
}

}  // namespace lopt
