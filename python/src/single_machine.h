#pragma once

#include <vector>

#include "lopt/learner/job/run_state.h"
#include "lopt/learner/worker.h"

namespace lopt::python {

// Everything of a lopt.SingleMachineGradientLearner that lives between two updates.
struct SingleMachineState {
  RunState run;
  std::vector<WorkerState> workers;  // in their order
};

}  // namespace lopt::python
