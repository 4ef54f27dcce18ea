#pragma once

#include <cstdint>
#include <span>

#include "lopt/estimators/device_program.h"
#include "lopt/estimators/lopt_problem.h"

namespace lopt {

// Windows on a device whose task evaluates there (TaskFamily::EvaluatesOn): in each inner step the
// task puts the losses and gradients of all replicas into the device's memory, and a launch of the
// rule's kernel updates them. Params, model states and the optimizer's states stay in that memory
// between steps and windows; losses come back after each step.

// DeviceProgram::Run of such a program.
void RunGivenGradients(const DeviceProgram& program, const Window& window);

// DeviceProgram::MetaLoss of such a program.
void MetaLossOfGiven(const DeviceProgram& program, int64_t replicas, std::span<const Key> keys,
                     const UnrollState& state, std::span<double> loss);

}  // namespace lopt
