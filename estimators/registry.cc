#include "estimators/registry.h"

#include "estimators/full_es.h"
#include "estimators/full_grad.h"
#include "estimators/lopt_problem.h"
#include "estimators/persistent_es.h"
#include "estimators/truncated_es.h"
#include "estimators/truncated_grad.h"

namespace lopt {
namespace {

using OptimizerPointer = std::shared_ptr<const LearnedOptimizer>;
using Estimators = Registry<ConfiguredEstimator, OptimizerPointer, const TaskResources&>;

// What every estimator's config says besides the estimator's own options: what is trained, for how
// long, and what it weighs.
struct EstimatorOptions {
  Config task;
  Config schedule;
  LoptProblemOptions problem;
  double weight = 1;

  void Visit(FieldVisitor& v) {
    v.Typed("task", &task, TaskRegistry().table(), "The tasks that are trained.");
    v.Typed("schedule", &schedule, ScheduleRegistry().table(),
            "How long an episode of inner training is.");
    problem.Visit(v);
    v.Field("weight", &weight, Above(0),
            "Weight of this estimator's gradient in the mean over estimators.");
  }
};

template <class Own>
struct WithOwn : EstimatorOptions {
  Own own;

  void Visit(FieldVisitor& v) {
    EstimatorOptions::Visit(v);
    own.Visit(v);
  }
};

std::shared_ptr<const LoptProblem> MakeProblem(const EstimatorOptions& options,
                                               OptimizerPointer optimizer,
                                               std::shared_ptr<const TruncationSchedule> schedule,
                                               const TaskResources& resources) {
  return std::make_shared<LoptProblem>(TaskRegistry().Make(options.task, resources),
                                       std::move(optimizer), std::move(schedule), options.problem);
}

std::shared_ptr<const DifferentiableProblem> MakeDifferentiable(
    const std::string& type, const EstimatorOptions& options, const OptimizerPointer& optimizer,
    std::shared_ptr<const TruncationSchedule> schedule, const TaskResources& resources) {
  return std::make_shared<DifferentiableProblem>("estimator '" + type + "'", options.task,
                                                 optimizer, std::move(schedule), options.problem,
                                                 resources);
}

std::shared_ptr<const ConfiguredEstimator> Configured(
    const EstimatorOptions& options, std::shared_ptr<const TruncationSchedule> schedule,
    std::shared_ptr<const GradientEstimator> estimator) {
  return std::make_shared<ConfiguredEstimator>(
      ConfiguredEstimator{.estimator = std::move(estimator),
                          .weight = options.weight,
                          .task = options.task.Type(),
                          .schedule = std::move(schedule)});
}

template <class Estimator, class Own = TruncatedOptions>
void AddTruncated(Estimators* registry, const char* type, const char* summary) {
  using Options = WithOwn<Own>;
  registry->Add<Options>(
      type, summary,
      [](const Options& options, OptimizerPointer optimizer, const TaskResources& resources) {
        const auto schedule = ScheduleRegistry().Make(options.schedule);
        auto problem = MakeProblem(options, std::move(optimizer), schedule, resources);
        problem->CheckEpisodesHaveLengths();
        return Configured(options, schedule,
                          std::make_shared<Estimator>(std::move(problem), options.own));
      });
}

Estimators BuiltInEstimators() {
  Estimators registry("estimator");
  AddTruncated<TruncatedPES>(
      &registry, "TruncatedPES",
      "Persistent evolution strategies: windows of unrolled tasks, unbiased over whole episodes.");
  AddTruncated<TruncatedNRES>(
      &registry, "TruncatedNRES",
      "Noise-reuse evolution strategies (ES-Single): as TruncatedPES, with one perturbation for "
      "each episode.");
  AddTruncated<GPESK, GPESK::Options>(
      &registry, "GPESK",
      "Between TruncatedPES and TruncatedNRES: a new perturbation every K inner steps of an "
      "episode.");
  AddTruncated<TruncatedES, TruncatedES::Options>(
      &registry, "TruncatedES",
      "Evolution strategies on windows that each start from carried tasks; biased by the "
      "truncation.");
  using FullOptions = WithOwn<FullES::Options>;
  registry.Add<FullOptions>(
      "FullES", "Evolution strategies over whole episodes, each started anew.",
      [](const FullOptions& options, OptimizerPointer optimizer, const TaskResources& resources) {
        auto problem = MakeProblem(options, std::move(optimizer),
                                   std::make_shared<NeverEndingTruncationSchedule>(), resources);
        const auto schedule = ScheduleRegistry().Make(options.schedule);
        return Configured(options, schedule,
                          std::make_shared<FullES>(std::move(problem), schedule, options.own));
      });
  using FullGradOptions = WithOwn<FullGrad::Options>;
  registry.Add<FullGradOptions>(
      "FullGrad",
      "The exact gradient of whole episodes by backpropagation, for small problems; needs the "
      "torch module.",
      [](const FullGradOptions& options, const OptimizerPointer& optimizer,
         const TaskResources& resources) {
        auto problem =
            MakeDifferentiable("FullGrad", options, optimizer,
                               std::make_shared<NeverEndingTruncationSchedule>(), resources);
        const auto schedule = ScheduleRegistry().Make(options.schedule);
        return Configured(options, schedule,
                          std::make_shared<FullGrad>(std::move(problem), schedule, options.own));
      });
  using TruncatedGradAllOptions = WithOwn<TruncatedGradOptions>;
  registry.Add<TruncatedGradAllOptions>(
      "TruncatedGrad",
      "Backpropagation through windows that each start from carried tasks, for small problems; "
      "biased by the truncation; needs the torch module.",
      [](const TruncatedGradAllOptions& options, const OptimizerPointer& optimizer,
         const TaskResources& resources) {
        const auto schedule = ScheduleRegistry().Make(options.schedule);
        auto problem = MakeDifferentiable("TruncatedGrad", options, optimizer, schedule, resources);
        problem->problem().CheckEpisodesHaveLengths();
        return Configured(options, schedule,
                          std::make_shared<TruncatedGrad>(std::move(problem), options.own));
      });
  return registry;
}

template <class Schedule>
void AddSchedule(Registry<TruncationSchedule>* registry, const char* type, const char* summary) {
  registry->Add<typename Schedule::Options>(type, summary,
                                            [](const typename Schedule::Options& options) {
                                              return std::make_shared<Schedule>(options);
                                            });
}

Registry<TruncationSchedule> BuiltInSchedules() {
  Registry<TruncationSchedule> registry("schedule");
  AddSchedule<ConstantTruncationSchedule>(&registry, "ConstantTruncationSchedule",
                                          "Every episode has the same length.");
  AddSchedule<LogUniformLengthSchedule>(
      &registry, "LogUniformLengthSchedule",
      "The logarithm of an episode's length is uniform; drawn for each episode.");
  AddSchedule<ScheduledTruncationSchedule>(
      &registry, "ScheduledTruncationSchedule",
      "The length follows the outer step, linear between given points.");
  AddSchedule<NeverEndingTruncationSchedule>(&registry, "NeverEndingTruncationSchedule",
                                             "Episodes do not end.");
  return registry;
}

}  // namespace

Estimators& EstimatorRegistry() {
  static Estimators registry = BuiltInEstimators();
  return registry;
}

Registry<TruncationSchedule>& ScheduleRegistry() {
  static Registry<TruncationSchedule> registry = BuiltInSchedules();
  return registry;
}

}  // namespace lopt
