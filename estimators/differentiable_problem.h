#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "lopt/base/config.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/tasks/derivatives.h"

namespace lopt {

// Tasks of a family trained by a learned optimizer, whose losses can be differentiated by theta:
// backpropagation through the unrolled updates, the gradients inside them included.
class DifferentiableProblem {
 public:
  // Opens the torch module on behalf of `who`, an estimator. Throws Error as MakeTaskDerivatives
  // and MakeTorchScript do, as LoptProblem does, and if the resources have a device.
  DifferentiableProblem(const std::string& who, const Config& task,
                        const std::shared_ptr<const LearnedOptimizer>& optimizer,
                        std::shared_ptr<const TruncationSchedule> schedule,
                        const LoptProblemOptions& options, const TaskResources& resources);

  // The same problem, to be run. Its optimizer is that of the constructor in TorchScript, whose
  // state has another layout.
  const LoptProblem& problem() const { return *problem_; }

  // dJ/dloss [K, B] of a trace [K, B] for a function J of its losses; 0 where a loss is not usable.
  using LossWeights = std::function<Eigen::ArrayXXd(const UnrollTrace& trace)>;

  // Runs `window`, none of whose rows may be perturbed, as problem().Run does, and gives
  // d_theta [D, B], what each replica's losses add to dJ/dtheta: float64 sums in the order of the
  // steps, latest first. What the state holds at the window's start, and what an episode that
  // begins inside it starts from, are constants. What comes after the last step with a weight
  // other than 0 is not looked at, so a training that has left the finite numbers there does no
  // harm. Memory: two square roots of K times the state of all replicas.
  Eigen::MatrixXd Run(const Window& window, const LossWeights& weights) const;

 private:
  struct Adjoint;

  // Turns dJ by what replica b's step gives into that by the state `before` it. `weight` is that
  // of the step's loss.
  void StepBack(const DifferentiableRule& rule, const Window& window, int64_t b,
                UnrollState* before, double weight, Adjoint* adjoint) const;

  std::shared_ptr<const TaskDerivatives> task_;
  std::shared_ptr<const DifferentiableOptimizer> optimizer_;
  std::shared_ptr<const LoptProblem> problem_;
};

}  // namespace lopt
