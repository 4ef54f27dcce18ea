#include "lopt/estimators/registry.h"

#include "lopt/estimators/estimator_options.h"
#include "lopt/estimators/full_es.h"
#include "lopt/estimators/full_grad.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/estimators/truncated_es.h"
#include "lopt/estimators/truncated_grad.h"

namespace lopt {
namespace {

using OptimizerPointer = std::shared_ptr<const LearnedOptimizer>;

std::shared_ptr<const DifferentiableProblem> MakeDifferentiable(
    const std::string& type, const EstimatorOptions& options, const OptimizerPointer& optimizer,
    std::shared_ptr<const TruncationSchedule> schedule, const TaskResources& resources) {
  return std::make_shared<DifferentiableProblem>("estimator '" + type + "'", options.task,
                                                 optimizer, std::move(schedule), options.problem,
                                                 resources);
}

EstimatorTypes BuiltInEstimators() {
  EstimatorTypes registry("estimator", kTypesOfPlugins);
  AddTruncated<TruncatedPES, TruncatedOptions>(
      &registry, "TruncatedPES",
      "Persistent evolution strategies: windows of unrolled tasks, unbiased over whole episodes.");
  AddTruncated<TruncatedNRES, TruncatedOptions>(
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
        const auto problem =
            MakeProblem(options, std::move(optimizer),
                        std::make_shared<NeverEndingTruncationSchedule>(), resources);
        const auto schedule = ScheduleRegistry().Make(options.lengths);
        return ConfiguredBy(options, problem->task(), schedule,
                            std::make_shared<FullES>(problem, schedule, options.own));
      });
  using FullGradOptions = WithOwn<FullGrad::Options>;
  registry.Add<FullGradOptions>(
      "FullGrad",
      "The exact gradient of whole episodes by backpropagation, for small problems; needs the "
      "torch module.",
      [](const FullGradOptions& options, const OptimizerPointer& optimizer,
         const TaskResources& resources) {
        const auto problem =
            MakeDifferentiable("FullGrad", options, optimizer,
                               std::make_shared<NeverEndingTruncationSchedule>(), resources);
        const auto schedule = ScheduleRegistry().Make(options.lengths);
        return ConfiguredBy(options, problem->problem().task(), schedule,
                            std::make_shared<FullGrad>(problem, schedule, options.own));
      });
  using TruncatedGradAllOptions = WithOwn<TruncatedGradOptions>;
  registry.Add<TruncatedGradAllOptions>(
      "TruncatedGrad",
      "Backpropagation through windows that each start from carried tasks, for small problems; "
      "biased by the truncation; needs the torch module.",
      [](const TruncatedGradAllOptions& options, const OptimizerPointer& optimizer,
         const TaskResources& resources) {
        const auto schedule = ScheduleRegistry().Make(options.lengths);
        const auto problem =
            MakeDifferentiable("TruncatedGrad", options, optimizer, schedule, resources);
        problem->problem().CheckEpisodesHaveLengths();
        return ConfiguredBy(options, problem->problem().task(), schedule,
                            std::make_shared<TruncatedGrad>(problem, options.own));
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
  Registry<TruncationSchedule> registry("truncation schedule", kTypesOfPlugins);
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

EstimatorTypes& EstimatorRegistry() {
  static EstimatorTypes registry = BuiltInEstimators();
  return registry;
}

Registry<TruncationSchedule>& ScheduleRegistry() {
  static Registry<TruncationSchedule> registry = BuiltInSchedules();
  return registry;
}

}  // namespace lopt
