#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lopt/base/config.h"
#include "lopt/base/fields.h"
#include "lopt/lopt/rules/of_another.h"

namespace lopt {

struct UnknownLengthOptions {
  Config optimizer;
  void Visit(FieldVisitor& v);
};

// Another optimizer in a training that may stop after any step, so that nobody knows its length.
// Before update t, counted from 0, the optimizer is told that the run has
//   T(t) = max(kShortest, floor(t / kProgress) + 1)
// steps, so that from update 35 on about 70 % of the run seems to be over. A schedule would let its
// steps shrink towards the end; here the training stands for an average x of the params p instead
// (UpdateRule::EvalParams), whose weights grow as the power kAveraging of the step (Shamir and
// Zhang 2013, arXiv 1212.1824, polynomial-decay averaging):
//   x <- (1 - w) x + w p with the new p, w = (kAveraging + 1) / (t + 1 + kAveraging).
// x is the new p after the first update, and mostly the mean of the last tenth of the steps later
// on. Whatever StepInfo::num_steps says is ignored.
//
// Theta: the optimizer's own. State: the optimizer's under "optimizer/", then x,
// "average/<tensor>".
class UnknownLength : public OfAnotherOptimizer {
 public:
  static constexpr int64_t kShortest = 50;
  static constexpr double kProgress = 0.7;
  static constexpr double kAveraging = 15;

  // T of update t, which is at least 0.
  static int64_t ToldLength(int64_t t);

  // Makes the optimizer by OptimizerRegistry(). Throws Error if its state depends on the run's
  // length (LearnedOptimizer::run_state_size and needs_num_steps), as Celo's averages of losses do:
  // the length told changes with each step, so these averages would belong to none.
  explicit UnknownLength(const UnknownLengthOptions& options);
  // Of an optimizer that is there. Throws Error likewise.
  explicit UnknownLength(const std::shared_ptr<const LearnedOptimizer>& optimizer);

 private:
  // Throws Error where the params that a training stands for are in the optimizer's state already.
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;
};

}  // namespace lopt
