#include "lopt/tasks/device_tasks.h"
#include "lopt/tasks/quadratic/linear_task.h"
#include "lopt/tasks/quadratic/quadratic.h"

namespace lopt {

std::optional<QuadraticDevice::Args> QuadraticArgs(const TaskFamily& family) {
  using Kind = QuadraticDevice::Kind;
  QuadraticDevice::Args args{
      .kind = Kind::kPlain, .dim = family.params_layout().size(), .factor = 0};
  if (dynamic_cast<const QuadraticTask*>(&family) != nullptr) return args;
  if (dynamic_cast<const FixedDimQuadraticFamily*>(&family) != nullptr) {
    args.kind = Kind::kTarget;
    return args;
  }
  if (dynamic_cast<const LogQuadraticTask*>(&family) != nullptr) {
    args.kind = Kind::kLog;
    return args;
  }
  if (const auto* linear = dynamic_cast<const LinearTask*>(&family)) {
    args.kind = Kind::kLinear;
    args.factor = linear->scale();
    return args;
  }
  if (const auto* noisy = dynamic_cast<const NoisyQuadraticFamily*>(&family)) {
    args.kind = Kind::kNoisy;
    args.factor = noisy->cov();
    return args;
  }
  return std::nullopt;
}

}  // namespace lopt
