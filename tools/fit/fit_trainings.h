#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// Trainings of a task on the split `train`, judged on inner_valid: all that a fit sees of a task
// beside its meta-training. None of them touches the splits outer_valid and test.
class FitTrainings {
 public:
  // `stop` may be null.
  FitTrainings(std::shared_ptr<const TaskFamily> task, int threads, const std::atomic<bool>* stop)
      : task_(std::move(task)), threads_(threads), stop_(stop) {}

  using Rules = std::vector<std::unique_ptr<UpdateRule>>;

  // The mean loss of each rule after `steps`, over `seeds` trainings whose draws are functions of
  // `key` and the seed's number: infinite where one is not finite. `on_trained` is told the share
  // that is done, by one thread at a time. Empty if `stop` became true.
  std::vector<double> Losses(const Rules& rules, int64_t steps, int64_t seeds, Key key,
                             const std::function<void(double)>& on_trained);

  // What short trainings say of whole ones.
  struct Speed {
    double seconds = 0;          // of a training of `steps`, where many keep all threads busy
    bool positive_loss = false;  // whether all losses of a short one were above 0
  };
  // Measured by as many trainings at once as there are threads, which are made longer, and then
  // more, until they take `enough_seconds`. The losses are those of a training of kMeasuredSteps,
  // whatever the clock says. `stop` is not looked at.
  static constexpr int64_t kMeasuredSteps = 5;
  Speed Measure(const UpdateRule& rule, int64_t steps, Key key, double enough_seconds);

 private:
  // The seconds of a training of `steps` by so many trainings of `measured`, those that these took,
  // and the first of them.
  struct Measured {
    double seconds = 0;
    double spent = 0;
    TrainingCurve curve = {};
  };
  Measured MeasureOnce(const UpdateRule& rule, int64_t steps, int64_t measured, int64_t trainings,
                       Key key);

  std::shared_ptr<const TaskFamily> task_;
  int threads_;
  const std::atomic<bool>* stop_;
  WorkspacePool workspaces_;
};

}  // namespace lopt
