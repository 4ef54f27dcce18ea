#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "lopt/learner/job/messages.h"
#include "lopt/learner/mode.h"

namespace lopt {

// Gradients that wait for an update in asynchronous training, oldest first. A gradient of outer
// step s is fresh at outer step t while 0 <= t - s <= staleness. What becomes of those that are not
// says the policy: dropped ones are given back to be counted, others kept with less weight.
class GradientBuffer {
 public:
  // Throws Error unless the options are valid.
  explicit GradientBuffer(const AsyncOptions& options);

  // Keeps the gradient at outer step `step` and returns true; false if it is too old or, an error
  // of its sender, from the future.
  bool Put(int64_t step, WorkerGradient gradient);
  // Whether a batch is there.
  bool Ready() const { return static_cast<int64_t>(gradients_.size()) >= options_.batch_size; }
  // The oldest batch_size gradients. Throws Error unless Ready().
  std::vector<WorkerGradient> Gather();
  // Gives back those that are too old at outer step `step`.
  std::vector<WorkerGradient> Prune(int64_t step);
  // 1; of a gradient that is not fresh 1 / (1 + age), or under kDivide 1 / age.
  double Weight(int64_t step, const WorkerGradient& gradient) const;

  const std::deque<WorkerGradient>& gradients() const { return gradients_; }

 private:
  bool Fresh(int64_t step, const WorkerGradient& gradient) const;

  bool KeepsStale() const { return options_.staleness_policy != StalenessPolicy::kDrop; }

  AsyncOptions options_;
  std::deque<WorkerGradient> gradients_;
};

}  // namespace lopt
