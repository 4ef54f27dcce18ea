#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "lopt/base/device.h"
#include "lopt/estimators/device_kernels.h"
#include "lopt/estimators/lopt_problem.h"

namespace lopt {

// What a device needs of a LoptProblem, made once: the functions of its task and of its optimizer,
// the data that they read, and how a block's memory is shared out. Of a task that has no functions
// but evaluates on the device (TaskFamily::EvaluatesOn) windows are run step by step, each an
// evaluation and a launch. Immutable, thread-safe.
class DeviceProgram {
 public:
  // Throws Error if the task or the optimizer has no device functions, an option of one has none,
  // or one replica needs more memory than a block has; and as TaskFamily::EvaluatesOn does.
  DeviceProgram(const LoptProblem& problem, const Device& device);

  // InnerProblem::Run and MetaLoss. The state's params, model_state and optimizer_state are moved
  // to the device's memory and stay there; the rest stays with the host.
  void Run(const Window& window) const;
  void MetaLoss(const ThetaRows& theta, std::span<const Key> keys, const UnrollState& state,
                std::span<double> loss) const;

  const LoptProblem& problem() const { return problem_; }
  const Device& device() const { return device_; }
  const ReplicaPlan& plan() const { return plan_; }
  int threads() const { return threads_; }
  const DeviceTask& task() const { return task_; }
  const DeviceRule& rule() const { return rule_; }
  // Whether the task's losses and gradients are given to the kernels.
  bool GivesGradients() const {
    return std::holds_alternative<DeviceFunctions<GivenGradientDevice>>(task_);
  }

 private:
  int64_t Room() const;
  int64_t RoomForTask() const;
  int64_t Weights() const;
  int64_t Arrays() const;
  void Plan();

  const LoptProblem& problem_;
  const Device& device_;
  DeviceConstants constants_;
  DeviceRule rule_;
  DeviceTask task_;
  int threads_ = 0;
  ReplicaPlan plan_;
};

}  // namespace lopt
