#include "lopt/estimators/estimator_options.h"

#include "lopt/tasks/image/fixed_task.h"

namespace lopt {

void EstimatorOptions::Visit(FieldVisitor& v) {
  v.Typed("task", &task, TaskRegistry().table(), "The tasks that are trained.");
  v.Typed("lengths", &lengths, ScheduleRegistry().table(),
          "How long an episode of inner training is.");
  v.Renamed("schedule", "lengths", "'schedule' is the factor of an optimizer's learning rate");
  problem.Visit(v);
  v.Field("weight", &weight, Above(0),
          "Weight of this estimator's gradient in the mean over estimators.");
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
    const EstimatorOptions& options, std::shared_ptr<const TruncationSchedule> schedule,
    std::shared_ptr<const GradientEstimator> estimator) {
  return std::make_shared<ConfiguredEstimator>(
      ConfiguredEstimator{.estimator = std::move(estimator),
                          .weight = options.weight,
                          .task = TaskLabel(options.task),
                          .schedule = std::move(schedule)});
}

}  // namespace lopt
