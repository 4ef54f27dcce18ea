#include "lopt/evaluation/evaluation_progress.h"

#include <utility>

namespace lopt {

using Clock = std::chrono::steady_clock;

EvaluationWatch::EvaluationWatch(std::function<void(const EvaluationProgress&)> on_progress,
                                 const std::atomic<bool>* stop, int64_t tasks, double work)
    : on_progress_(std::move(on_progress)), stop_(stop), work_(work), start_(Clock::now()) {
  progress_.tasks = tasks;
}

void EvaluationWatch::BeginTask(const std::string& task, int64_t number) {
  progress_.task = task;
  progress_.task_number = number;
}

void EvaluationWatch::BeginStage(const std::string& stage) {
  progress_.stage = stage;
  Tell();
}

void EvaluationWatch::Trained(int64_t inner_steps, double work) {
  const std::lock_guard lock(mutex_);
  progress_.inner_steps += inner_steps;
  work_done_ += work;
  progress_.done = work_done_ / work_;
  Tell();
}

void EvaluationWatch::Tell() {
  progress_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (on_progress_) on_progress_(progress_);
}

}  // namespace lopt
