#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lopt/base/metrics.h"
#include "lopt/base/parallel.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/job/message_loop.h"
#include "lopt/learner/job/run_state.h"

namespace lopt {

// How a run's updates of theta are made from the gradients that its workers send: the one part of
// the learner that differs between the modes.
class Updates {
 public:
  // On so many threads where updates add up many numbers.
  explicit Updates(int threads) : threads_(threads) {}
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

 protected:
  // As UpdateTheta. If the gradients have many numbers, it runs on threads of its own: those that
  // run windows may be busy with them. No bit depends on the threads, because each element of a sum
  // is one thread's and an optimizer's update has the same bits on any.
  UpdateSummary UpdateOnThreads(const GradientLearner& learner,
                                std::vector<WorkerGradient> gradients,
                                std::span<const double> weights, RunState* state);

 private:
  int threads_;
  std::optional<ThreadPool> pool_;  // made for the first update that needs it
};

// One update with these gradients, in this order, each with its weight (without weights: 1), and
// the account of their steps.
UpdateSummary UpdateTheta(const GradientLearner& learner, std::vector<WorkerGradient> gradients,
                          std::span<const double> weights, RunState* state);

}  // namespace lopt
