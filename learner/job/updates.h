#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lopt/base/metrics.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/job/message_loop.h"
#include "lopt/learner/job/run_state.h"

namespace lopt {

// How a run's updates of theta are made from the gradients that its workers send: the one part of
// the learner that differs between the modes.
class Updates {
 public:
  virtual ~Updates() = default;

  // Takes a gradient, whenever it comes; one that no update can use any more is accounted for and
  // dropped. Returns whether its worker is to go on with the theta there is; if not, with the next.
  virtual bool Take(WorkerGradient gradient) = 0;
  // To be called when theta has been given to workers: waits until there are gradients enough,
  // updates theta with them and accounts for their steps. None if a stop was asked for before.
  virtual std::optional<UpdateSummary> Make() = 0;
  // Accounts for gradients that were taken and not used, as lost.
  virtual void AccountUnused(Ledger*) const {}
  // Adds what there is to say of the last update.
  virtual void AddMetrics(Metrics*) const {}
};

// One update with these gradients, in this order, each with its weight (without weights: 1), and
// the account of their steps.
UpdateSummary UpdateTheta(const GradientLearner& learner, std::vector<WorkerGradient> gradients,
                          std::span<const double> weights, RunState* state);

}  // namespace lopt
