#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/layout.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tasks/task_resources.h"

namespace lopt {

struct ScriptModule;  // base/script_module.h

// Derivatives of the parts of an inner step, from which gradients through unrolled trainings are
// made. J is any function of what a part returns; "d_x" is dJ/dx, a row of numbers like x. Given
// d_x of what it returns, a part gives d_x of what it was made from. ReLU has the slope 0 at 0.
// Everything here is immutable and thread-safe. The torch module computes it by autograd.

// Of the evaluation of a task: what its loss, its gradient and its new model state depend on.
class TaskDerivatives {
 public:
  virtual ~TaskDerivatives() = default;

  // dJ by what one row of TaskFamily::Evaluate returns.
  struct Outer {
    double loss = 0;                       // by the loss or, where one is named, by that aux output
    std::optional<int64_t> aux = {};       // the index of that output
    std::span<const float> gradient = {};  // [P]; empty: zeros
    std::span<const float> model_state = {};  // [M]; empty: zeros
  };
  // d_params [P] and d_model_state [M] of the evaluation `at`, whose rows must be 1 and of which
  // all but losses, gradients and aux is read. Throws Error as Evaluate does, and if the aux output
  // cannot be differentiated.
  virtual void Differentiate(const TaskEvaluation& at, const Outer& outer,
                             std::span<float> d_params, std::span<float> d_model_state,
                             Workspace& scratch) const = 0;
};

// Of an update rule for params of one layout, with its theta bound.
class DifferentiableRule {
 public:
  virtual ~DifferentiableRule() = default;

  virtual const Layout& state_layout() const = 0;  // S
  // The state [S] before the first update.
  virtual void InitState(std::span<const float> params, std::span<float> state) const = 0;

  // Where an update is in the training.
  struct Step {
    int64_t step = 0;       // updates made so far with this state
    int64_t num_steps = 0;  // length of the run; 0 if unknown
  };
  // One update of params and state in place.
  virtual void Update(const Step& step, std::span<const float> gradient, std::span<float> params,
                      std::span<float> state) const = 0;
  // Of the update of `params` and `state` by `gradient`: d_params and d_state, given by what they
  // become, are replaced by those of what they are; d_gradient is set; d_theta [D] is added to.
  virtual void Differentiate(const Step& step, std::span<const float> gradient,
                             std::span<const float> params, std::span<const float> state,
                             std::span<float> d_params, std::span<float> d_state,
                             std::span<float> d_gradient, std::span<double> d_theta) const = 0;
};

// A learned optimizer whose updates can be differentiated. Immutable, thread-safe.
class DifferentiableOptimizer {
 public:
  virtual ~DifferentiableOptimizer() = default;
  // The rule of a theta [D] for params of this layout. Throws Error if theta does not have D
  // numbers.
  virtual std::unique_ptr<DifferentiableRule> Bind(const Layout& params,
                                                   std::span<const float> theta) const = 0;
};

// The types of tasks that have derivatives: those written with LibTorch and those that the torch
// module has counterparts of.
std::vector<std::string> TypesWithDerivatives();

// The derivatives of a task of this config, whose losses are normalised as TaskFamily does by
// itself. Opens the torch module on behalf of `who` and throws Error as OpenTorchModule does; also,
// with a list of the types that have derivatives, if this one has none.
std::shared_ptr<const TaskDerivatives> MakeTaskDerivatives(const std::string& who,
                                                           const Config& task,
                                                           const TaskResources& resources);
// The optimizer of a script with the methods init_state and update (lopt/use/torch_script.h), its
// theta that of each Bind.
std::shared_ptr<const DifferentiableOptimizer> MakeDifferentiableOptimizer(
    const std::string& who, const ScriptModule& script);

}  // namespace lopt
