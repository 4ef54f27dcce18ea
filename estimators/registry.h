#pragma once

#include <memory>
#include <string>

#include "lopt/base/registry.h"
#include "lopt/estimators/gradient_estimator.h"
#include "lopt/estimators/truncation_schedule.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/registry.h"

namespace lopt {

// An estimator as a config names it: the estimator with its weight in the worker's mean and the
// task's name for metrics.
struct ConfiguredEstimator {
  std::shared_ptr<const GradientEstimator> estimator;  // thread-safe, shared
  double weight = 1;  // of its gradient in a worker's mean, at least 0
  std::string task;   // TaskLabel of its task
  // Of the episodes' lengths; null if the estimator has none.
  std::shared_ptr<const TruncationSchedule> schedule = nullptr;
  TrainedRange sizes = {};  // of its task, without lengths; unknown if it has none
};

// A registry of estimators; they are made for an optimizer, with the data of a run.
using EstimatorTypes =
    Registry<ConfiguredEstimator, std::shared_ptr<const LearnedOptimizer>, const TaskResources&>;

// The gradient estimators by the names of their types, built-in ones included.
EstimatorTypes& EstimatorRegistry();
// The truncation schedules by the names of their types.
Registry<TruncationSchedule>& ScheduleRegistry();

}  // namespace lopt
