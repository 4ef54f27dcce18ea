#pragma once

#include <string>
#include <vector>

#include "lopt/base/script_module.h"
#include "lopt/lopt/theta_file.h"

namespace lopt {

// A learned optimizer with its theta as a TorchScript module, for programs that have LibTorch or
// PyTorch but not this project. Its two methods change nothing in place:
//   init_state(param: Tensor) -> Tensor
//     The state of a fresh parameter: float32 [k, shape of param], on param's device; k is 6 for
//     MLPLOpt (its momenta), 0 for LearnableSGD, 1 for LearnableSGDM, 2 for LearnableAdam. For
//     AdafacMLPLOpt, Celo2, Celo2Base and LearnedScheduler it is float32 [S], the arrays of its
//     state one after the other; so it is for MatricesAndVectors, those of the optimizer that steps
//     the parameter; for OrthogonalSteps, that of the optimizer that it changes; for Celo, CeloAdam
//     and Sinv6, those of the moments and of the scheduler, whose LSTM and means of the losses
//     every parameter then has for itself.
//   update(param: Tensor, grad: Tensor, state: Tensor, step: int, num_steps: int = 0,
//          loss: Optional[float] = None, lr: float = 1.0, weight_decay: float = 0.0)
//       -> Tuple[Tensor, Tensor]
//     The new param, of param's dtype, and the new state. `step` is the number of updates that this
//     state has seen: 0 at the first. `num_steps` is the number of updates of the training; where
//     the optimizer needs it, a step that is not below it raises an exception. `loss` is the loss
//     whose gradient is applied; Celo, CeloAdam and Sinv6, also within another, need it, and raise
//     an exception without one or where it is not finite. `lr` and `weight_decay` are those of
//     StepOptions (lopt/use/tensor_updates.h). The step is computed in float32.
// Parameters may have any shape and any floating type; each tensor is a problem of its own. Those
// of two axes or more are [out, in, spatial...], which matters to those that see shapes alone: they
// see them as [spatial..., in, out], the order that they were trained with.
// Celo2 steps those of fewer axes by Adam; a table of embeddings is given to it as a vector. The
// module's buffers are the tensors of theta, "/" in their names replaced by "_".
//
// The text is that of the one-file optimizer (python/lopt_optimizer.py): the files of
// python/rules/, which the build embeds. Of them a module has the functions and methods without a
// decorator, and values of the optimizer's options.

// The learned optimizers that have such a script.
std::vector<std::string> TypesWithTorchScript();

// Why an optimizer, given by type and options, or one whose steps it changes, has no such script,
// and so, but for UnknownLength, is no type of the one-file optimizer either: "a RNNMLPLOpt cannot
// be exported, ...", with the types that can. Empty if it has one. Throws Error as
// ResolvedOptimizer does.
std::string ObjectionToTorch(const Config& learned_optimizer);
// The same in the words of one who would differentiate it: "a Lion cannot be differentiated; ...",
// with the types that have a script and see no loss.
std::string ObjectionToExactGradients(const Config& learned_optimizer);

// Throws Error that lists the types that have such a script if the file's, or one whose steps it
// changes, has none.
ScriptModule MakeTorchScript(const ThetaFile& theta_file);

}  // namespace lopt
