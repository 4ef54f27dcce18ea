#include "lopt/learner/job/gradient_buffer.h"

#include <iterator>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {

GradientBuffer::GradientBuffer(const AsyncOptions& options) : options_(options) {
  CheckOptions("Async", options);
}

bool GradientBuffer::Fresh(int64_t step, const WorkerGradient& gradient) const {
  const int64_t age = step - gradient.gradient.outer_step;
  return age >= 0 && age <= options_.staleness;
}

bool GradientBuffer::Put(int64_t step, WorkerGradient gradient) {
  if (gradient.gradient.outer_step > step || !(KeepsStale() || Fresh(step, gradient))) {
    return false;
  }
  gradients_.push_back(std::move(gradient));
  return true;
}

std::vector<WorkerGradient> GradientBuffer::Gather() {
  Require(Ready(), "a batch of {} gradients is not there, only {}", options_.batch_size,
          gradients_.size());
  const auto end = gradients_.begin() + options_.batch_size;
  std::vector<WorkerGradient> batch(std::make_move_iterator(gradients_.begin()),
                                    std::make_move_iterator(end));
  gradients_.erase(gradients_.begin(), end);
  return batch;
}

std::vector<WorkerGradient> GradientBuffer::Prune(int64_t step) {
  std::vector<WorkerGradient> pruned;
  if (!KeepsStale()) {
    std::erase_if(gradients_, [&](WorkerGradient& gradient) {
      if (Fresh(step, gradient)) {
        return false;
      }
      pruned.push_back(std::move(gradient));
      return true;
    });
  }
  return pruned;
}

double GradientBuffer::Weight(int64_t step, const WorkerGradient& gradient) const {
  if (Fresh(step, gradient)) {
    return 1;
  }
  const auto age = static_cast<double>(step - gradient.gradient.outer_step);
  return 1 / (options_.staleness_policy == StalenessPolicy::kDivide ? age : 1 + age);
}

}  // namespace lopt
