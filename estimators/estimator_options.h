#pragma once

#include <memory>
#include <string>
#include <utility>

#include "lopt/base/config.h"
#include "lopt/base/fields.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/registry.h"

namespace lopt {

// What every estimator's config says besides the estimator's own options: what is trained, for how
// long, and what it weighs.
struct EstimatorOptions {
  Config task;
  Config lengths;              // a truncation schedule
  LoptProblemOptions problem;  // of the same object of the config
  double weight = 1;

  void Visit(FieldVisitor& v);
};

// Both in one config.
template <class Own>
struct WithOwn : EstimatorOptions {
  Own own;  // the estimator's

  void Visit(FieldVisitor& v) {
    EstimatorOptions::Visit(v);
    own.Visit(v);
  }
};

// The task's training under the optimizer, on the device of the resources. Throws Error as the
// makers of both and LoptProblem do.
std::shared_ptr<const LoptProblem> MakeProblem(const EstimatorOptions& options,
                                               std::shared_ptr<const LearnedOptimizer> optimizer,
                                               std::shared_ptr<const TruncationSchedule> schedule,
                                               const TaskResources& resources);

// What an estimator's maker returns; `task` is the problem's.
std::shared_ptr<const ConfiguredEstimator> ConfiguredBy(
    const EstimatorOptions& options, const TaskFamily& task,
    std::shared_ptr<const TruncationSchedule> schedule,
    std::shared_ptr<const GradientEstimator> estimator);

// Adds an estimator of windows, made as Estimator(std::shared_ptr<const InnerProblem>, const Own&).
// Options of its own are `Own`.
template <class Estimator, class Own>
void AddTruncated(EstimatorTypes* types, const std::string& type, std::string summary) {
  types->Add<WithOwn<Own>>(
      type, std::move(summary),
      [](const WithOwn<Own>& options, std::shared_ptr<const LearnedOptimizer> optimizer,
         const TaskResources& resources) {
        const auto schedule = ScheduleRegistry().Make(options.lengths);
        const auto problem = MakeProblem(options, std::move(optimizer), schedule, resources);
        problem->CheckEpisodesHaveLengths();
        return ConfiguredBy(options, problem->task(), schedule,
                            std::make_shared<Estimator>(problem, options.own));
      });
}

}  // namespace lopt
