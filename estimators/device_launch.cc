#include "lopt/estimators/device_launch.h"

namespace lopt {

DeviceLaunch::DeviceLaunch(const DeviceProgram& program, const ThetaRows& theta,
                           std::span<const float> config)
    : program_(program), memory_(program.device().memory()), inputs_(memory_) {
  const LoptProblem& problem = program.problem();
  window_.replicas = theta.rows;
  window_.threads = program.threads();
  window_.plan = program.plan();
  window_.config_size = problem.task().config_layout().size();
  window_.params_size = problem.task().params_layout().size();
  window_.state_size = problem.optimizer_state_layout().size();
  window_.before_update = problem.MetaLossIsBeforeUpdate();
  if (problem.meta_loss_split()) {
    window_.meta_split = static_cast<int>(*problem.meta_loss_split());
  }
  window_.aux = problem.meta_loss_aux().has_value();
  window_.config = inputs_.Keep(config);
  SetTheta(theta);
  if (!program.plan().resident) {
    gradient_ =
        Buffer(static_cast<size_t>(theta.rows * window_.params_size) * sizeof(float), memory_);
    window_.gradient = FloatsOf(gradient_);
  }
}

Array DeviceLaunch::Run(int64_t steps) {
  window_.steps = steps;
  Array losses(DType::kFloat32, {window_.replicas, steps}, memory_);
  window_.losses = FloatsOf(losses.buffer());
  RunWindowKernel(program_.device(), program_.task(), program_.rule(), window_);
  return losses.To(HostMemory());
}

void DeviceLaunch::SetTheta(const ThetaRows& theta) {
  DeviceTheta& to = window_.theta;
  to.theta = inputs_.Keep(theta.theta);
  if (theta.perturbations == nullptr) return;
  const Perturbations& perturbations = *theta.perturbations;
  to.pairs = perturbations.pairs();
  to.keys = inputs_.Keep(perturbations.keys());
  to.std = static_cast<float>(perturbations.std());
  if (perturbations.clock().block == PerturbationClock::kWindow) return;
  to.block = perturbations.clock().block;
  to.episodes = inputs_.Keep(perturbations.episodes());
}

}  // namespace lopt
