#include "lopt/estimators/estimator_options.h"

#include <algorithm>

#include "lopt/tasks/image/fixed_task.h"
#include "lopt/tasks/wrappers/task_wrapper.h"

namespace lopt {
namespace {

// A mix of families whose batches differ has none of its own.
void AddBatches(const TaskFamily& task, TrainedRange* sizes) {
  if (const int64_t batch = task.parts().data.batch_size; batch > 0) {
    sizes->smallest_batch =
        sizes->smallest_batch == 0 ? batch : std::min(sizes->smallest_batch, batch);
    sizes->largest_batch = std::max(sizes->largest_batch, batch);
  } else if (const auto* over = dynamic_cast<const FamilyOverFamilies*>(&task)) {
    for (const TaskFamily* inside : over->inside()) AddBatches(*inside, sizes);
  }
}

TrainedRange SizesOf(const TaskFamily& task) {
  TrainedRange sizes;
  AddBatches(task, &sizes);
  sizes.fewest_params = sizes.most_params = task.params_layout().size();
  for (const LayoutEntry& entry : task.params_layout().entries()) {
    sizes.largest_tensor = std::max(sizes.largest_tensor, NumElements(entry.shape));
  }
  return sizes;
}

}  // namespace

void EstimatorOptions::Visit(FieldVisitor& v) {
  v.Typed("task", &task, TaskRegistry().table(), "The tasks that are trained.");
  v.Typed("lengths", &lengths, ScheduleRegistry().table(),
          "How long an episode of inner training is.");
  v.Renamed("schedule", "lengths", "'schedule' is the factor of an optimizer's learning rate");
  problem.Visit(v);
  v.Field(
      "weight", &weight, Above(0),
      "Weight of this estimator's gradient in the mean of a worker over those that it runs; with "
      "weighting equal_norm, in the mean over all.");
}

std::shared_ptr<const LoptProblem> MakeProblem(const EstimatorOptions& options,
                                               std::shared_ptr<const LearnedOptimizer> optimizer,
                                               std::shared_ptr<const TruncationSchedule> schedule,
                                               const TaskResources& resources) {
  return std::make_shared<LoptProblem>(TaskRegistry().Make(options.task, resources),
                                       std::move(optimizer), std::move(schedule), options.problem,
                                       resources.UseDevice());
}

std::shared_ptr<const ConfiguredEstimator> ConfiguredBy(
    const EstimatorOptions& options, const TaskFamily& task,
    std::shared_ptr<const TruncationSchedule> schedule,
    std::shared_ptr<const GradientEstimator> estimator) {
  return std::make_shared<ConfiguredEstimator>(
      ConfiguredEstimator{.estimator = std::move(estimator),
                          .weight = options.weight,
                          .task = TaskLabel(options.task),
                          .schedule = std::move(schedule),
                          .sizes = SizesOf(task)});
}

}  // namespace lopt
