#include "learner/job/gradient_buffer.h"

#include <iterator>
#include <utility>

#include "base/error.h"

namespace lopt {

GradientBuffer::GradientBuffer(int64_t batch_size, int64_t staleness, bool keep_stale)
    : batch_size_(batch_size), staleness_(staleness), keep_stale_(keep_stale) {
  Require(batch_size >= 1 && staleness >= 0,
          "a gradient buffer needs batch_size >= 1 and staleness >= 0, got {} and {}", batch_size,
          staleness);
}

bool GradientBuffer::Fresh(int64_t step, const WorkerGradient& gradient) const {
  const int64_t age = step - gradient.gradient.outer_step;
  return age >= 0 && age <= staleness_;
}

bool GradientBuffer::Put(int64_t step, WorkerGradient gradient) {
  if (gradient.gradient.outer_step > step || !(keep_stale_ || Fresh(step, gradient))) {
    return false;
  }
  gradients_.push_back(std::move(gradient));
  return true;
}

std::vector<WorkerGradient> GradientBuffer::Gather() {
  Require(Ready(), "a batch of {} gradients is not there, only {}", batch_size_, gradients_.size());
  const auto end = gradients_.begin() + batch_size_;
  std::vector<WorkerGradient> batch(std::make_move_iterator(gradients_.begin()),
                                    std::make_move_iterator(end));
  gradients_.erase(gradients_.begin(), end);
  return batch;
}

std::vector<WorkerGradient> GradientBuffer::Prune(int64_t step) {
  std::vector<WorkerGradient> pruned;
  if (!keep_stale_) {
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
  return Fresh(step, gradient) ? 1
                               : 1 / (1 + static_cast<double>(step - gradient.gradient.outer_step));
}

}  // namespace lopt
