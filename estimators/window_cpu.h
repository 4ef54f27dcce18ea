#pragma once

#include <cstdint>
#include <span>

#include "lopt/estimators/lopt_problem.h"

namespace lopt {

// InnerProblem::Run of a LoptProblem on the host: groups of LoptProblem::GroupRows replicas in
// parallel on the pool around the call, each advanced in place, all its inner steps at once, so
// that a replica's state stays in cache. What is in `window` has been checked.
void RunWindowOnCpu(const LoptProblem& problem, const Window& window);

// InnerProblem::MetaLoss of a LoptProblem on the host.
void MetaLossOnCpu(const LoptProblem& problem, int64_t replicas, std::span<const Key> keys,
                   const UnrollState& state, std::span<double> loss);

}  // namespace lopt
