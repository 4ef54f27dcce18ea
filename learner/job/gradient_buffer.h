#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "learner/job/messages.h"

namespace lopt {

// Gradients that wait for an update in asynchronous training, oldest first. A gradient of outer
// step s is fresh at outer step t while 0 <= t - s <= staleness. Those that are not are given back
// to be counted, or kept under `keep_stale` (and weighted by whoever uses them).
class GradientBuffer {
 public:
  // Throws Error unless batch_size >= 1 and staleness >= 0.
  GradientBuffer(int64_t batch_size, int64_t staleness, bool keep_stale);

  // Keeps the gradient at outer step `step` and returns true; false if it is too old or, an error
  // of its sender, from the future.
  bool Put(int64_t step, WorkerGradient gradient);
  // Whether a batch is there.
  bool Ready() const { return static_cast<int64_t>(gradients_.size()) >= batch_size_; }
  // The oldest batch_size gradients. Throws Error unless Ready().
  std::vector<WorkerGradient> Gather();
  // Gives back those that are too old at outer step `step`.
  std::vector<WorkerGradient> Prune(int64_t step);
  // 1, or 1 / (1 + age) if the gradient is not fresh.
  double Weight(int64_t step, const WorkerGradient& gradient) const;

  const std::deque<WorkerGradient>& gradients() const { return gradients_; }

 private:
  bool Fresh(int64_t step, const WorkerGradient& gradient) const;

  int64_t batch_size_;
  int64_t staleness_;
  bool keep_stale_;
  std::deque<WorkerGradient> gradients_;
};

}  // namespace lopt
