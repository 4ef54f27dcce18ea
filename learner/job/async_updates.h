#pragma once

#include <functional>
#include <optional>

#include "lopt/learner/job/gradient_buffer.h"
#include "lopt/learner/job/updates.h"
#include "lopt/learner/mode.h"

namespace lopt {

// Mode "Async": an update takes the oldest batch_size gradients that have come, those of somewhat
// older weights as well.
class AsyncUpdates final : public Updates {
 public:
  // A wait ends when `stop` returns true; `threads` as Updates has them.
  AsyncUpdates(const AsyncOptions& options, const GradientLearner* learner, RunState* state,
               MessageLoop* loop, std::function<bool()> stop, int threads);

  bool Take(WorkerGradient gradient) override;
  std::optional<UpdateSummary> Make() override;
  void AccountUnused(Ledger* ledger) const override;

 private:
  const GradientLearner* learner_;
  RunState* state_;
  MessageLoop* loop_;
  std::function<bool()> stop_;
  GradientBuffer buffer_;
};

}  // namespace lopt
