#pragma once

#include <vector>

#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/job/messages.h"
#include "lopt/learner/run/ledger.h"

namespace lopt {

// What the learner of a run keeps between two updates. Checkpoints hold all of it.
struct RunState {
  LearnerState learner;
  std::vector<StepCounts> totals;  // by estimator, all workers, since the start of the run
  Ledger ledger;                   // of all inner steps since the start of the run
};

// The windows that were run for a gradient, as the ledger names them.
inline WorkerWindows WindowsOf(const WorkerGradient& gradient) {
  return {.worker = gradient.worker, .first = gradient.first_window, .windows = gradient.windows};
}

}  // namespace lopt
