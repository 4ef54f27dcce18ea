#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace lopt {

// How far an evaluation is. Shares of work are those of the tasks that this call trains; a
// training's work is the sum of the numbers of steps that it is judged after, times the task's
// params: one that serves several numbers of steps makes fewer steps than that.
struct EvaluationProgress {
  std::string task = {};    // the one under way
  std::string stage = {};   // of it: "tuning 8 optimizers", "training 9 optimizers"
  int64_t task_number = 0;  // from 1, in the order of the config
  int64_t tasks = 0;        // of the whole evaluation
  double seconds = 0;       // since the call began
  int64_t inner_steps = 0;  // made by this call
  double done = 0;          // share of the work, in [0, 1]
};

// Tells how far an evaluation is, and whether it is to stop.
class EvaluationWatch {
 public:
  // `on_progress`, where there is one, is called when a stage begins and after trainings, by one
  // thread at a time; `stop` may be null; `tasks` and `work` are those of the whole call.
  EvaluationWatch(std::function<void(const EvaluationProgress&)> on_progress,
                  const std::atomic<bool>* stop, int64_t tasks, double work);

  // True where it is to stop; may be null.
  const std::atomic<bool>* stop() const { return stop_; }
  // Tells that this task begins, by its number from 1.
  void BeginTask(const std::string& task, int64_t number);
  // Tells that this stage of the task begins.
  void BeginStage(const std::string& stage);
  // Thread-safe.
  void Trained(int64_t inner_steps, double work);

 private:
  void Tell();

  const std::function<void(const EvaluationProgress&)> on_progress_;
  const std::atomic<bool>* const stop_;
  const double work_;
  const std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  double work_done_ = 0;
  EvaluationProgress progress_;
};

}  // namespace lopt
