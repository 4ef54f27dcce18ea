#include "lopt/tools/check/check_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/estimators/check/checks.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/lopt/check/optimizer_checks.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/check/task_checks.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/check/count_allocations.h"

namespace lopt {
namespace {

using Optimizer = std::shared_ptr<const LearnedOptimizer>;

Config Defaults(const char* type) {
  return Config::Parse(fmt::format(R"({{"type": "{}"}})", type), type);
}

// The value of a key, if it is an object.
void AddPart(const Config& config, const char* key, std::vector<Config>* parts) {
  const auto part = config.json().find(key);
  if (part != config.json().end() && part->is_object()) {
    parts->push_back(Config::FromJson(*part, config.path() + "." + key));
  }
}

void KeepFirstOfEach(std::vector<Config>* configs) {
  std::set<std::string> seen;
  std::erase_if(*configs,
                [&](const Config& config) { return !seen.insert(config.Dump(-1)).second; });
}

// Whether an estimator has perturbations whose length its gradients should not depend on: an option
// `std`, and no signs of differences in the place of these.
bool HasStd(const Config& estimator) {
  const auto& entry = EstimatorRegistry().table().Find(estimator);
  const auto sign = estimator.json().find("sign_delta_loss_scalar");
  return WriteFields("", entry.fields).json().contains("std") &&
         (sign == estimator.json().end() || sign->is_null());
}

// Of another task, whose states fit no other estimator.
std::shared_ptr<const GradientEstimator> OtherEstimator(const Optimizer& optimizer,
                                                        const TaskResources& resources) {
  const Config config = Config::Parse(
      R"({"type": "TruncatedPES", "num_tasks": 1, "task": {"type": "QuadraticTask", "dim": 9173},
          "lengths": {"type": "ConstantTruncationSchedule"}})",
      "an estimator of another task");
  return EstimatorRegistry().Make(config, optimizer, resources)->estimator;
}

checks::EstimatorUnderCheck EstimatorOf(const Config& config, const Optimizer& optimizer,
                                        const TaskResources& resources) {
  const std::vector<float> theta = checks::DrawTheta(*optimizer, 1);
  checks::EstimatorUnderCheck subject{
      .estimator = EstimatorRegistry().Make(config, optimizer, resources)->estimator,
      .weights = {.theta = Eigen::Map<const Eigen::VectorXf>(theta.data(), std::ssize(theta)),
                  .outer = {}},
      .others = {OtherEstimator(optimizer, resources)}};
  if (HasStd(config)) {
    subject.with_std = [=, &resources](double std) {
      const Config other = config.With("std", fmt::format("{}", std));
      return EstimatorRegistry().Make(other, optimizer, resources)->estimator;
    };
  }
  return subject;
}

template <class Subject>
std::vector<ListedCheck> Listed(const std::vector<checks::Check<Subject>>& all) {
  std::vector<ListedCheck> listed;
  for (const auto& check : all) listed.push_back({check.name, check.promise, check.header});
  return listed;
}

}  // namespace

void AddMetaTraining(const Config& config, CheckRequest* request) {
  const auto read = ReadOptions<MetaTrainConfig>(config);
  CheckConfig(read);
  request->optimizers.push_back(read.learned_optimizer);
  for (const Config& estimator : read.estimators) {
    AddPart(estimator, "task", &request->tasks);
    AddPart(estimator, "lengths", &request->schedules);
    request->estimators.push_back(estimator);
  }
  request->tasks.insert(request->tasks.end(), read.eval_tasks.begin(), read.eval_tasks.end());
  if (request->data_dir.empty()) request->data_dir = read.data_dir;
  if (request->isa.empty()) request->isa = read.isa;
}

void RunRequest(const CheckRequest& from, const std::function<void(const CheckedThing&)>& done) {
  CheckRequest request = from;
  if (!request.isa.empty()) PinIsa(request.isa);
  for (auto* configs :
       {&request.optimizers, &request.tasks, &request.schedules, &request.estimators}) {
    KeepFirstOfEach(configs);
  }
  const TaskResources resources(request.data_dir);
  const auto check = [&](const std::string& name, const std::string& config, const auto& all,
                         const auto& subject,
                         const std::vector<checks::CheckOutcome>& before = {}) {
    const CheckedThing thing{.name = name,
                             .config = config,
                             .outcomes = checks::RunChecks(all, subject, CountAllocations, before)};
    done(thing);
    return thing.outcomes;
  };
  for (const Config& config : request.optimizers) {
    check("learned optimizer " + config.Type(), config.Dump(-1), checks::OptimizerChecks(),
          *OptimizerRegistry().Make(config));
  }
  for (const Config& config : request.schedules) {
    check("truncation schedule " + config.Type(), config.Dump(-1), checks::ScheduleChecks(),
          *ScheduleRegistry().Make(config));
  }
  // What trains, and what is trained, where one of them is not named.
  std::vector<Config> optimizers = request.optimizers;
  if (optimizers.empty()) optimizers.push_back(Defaults("LearnableAdam"));
  std::vector<Config> tasks = request.tasks;
  if (tasks.empty() && !request.optimizers.empty()) {
    tasks.push_back(Defaults("FixedDimQuadraticFamily"));
  }
  for (const Config& config : tasks) {
    const auto task = TaskRegistry().Make(config, resources);
    std::vector<checks::CheckOutcome> of_task;
    if (!request.tasks.empty()) {
      of_task = check("task " + config.Type(), config.Dump(-1), checks::TaskChecks(), *task);
    }
    for (const Config& optimizer : optimizers) {
      check(fmt::format("{} trained by {}", config.Type(), optimizer.Type()), "",
            checks::ProblemChecks(), checks::TrainedBy(OptimizerRegistry().Make(optimizer), task),
            of_task);
    }
  }
  for (const Config& config : request.estimators) {
    for (const Config& optimizer : optimizers) {
      check(fmt::format("estimator {} of {}", config.Type(), optimizer.Type()), config.Dump(-1),
            checks::EstimatorChecks(),
            EstimatorOf(config, OptimizerRegistry().Make(optimizer), resources));
    }
  }
}

std::string ListOfChecks() {
  return CheckList("Of a task family:", Listed(checks::TaskChecks())) +
         CheckList("Of a learned optimizer:", Listed(checks::OptimizerChecks())) +
         CheckList("Of a truncation schedule:", Listed(checks::ScheduleChecks())) +
         CheckList("Of an inner problem, such as a task trained by an optimizer:",
                   Listed(checks::ProblemChecks())) +
         CheckList("Of a gradient estimator:", Listed(checks::EstimatorChecks()));
}

}  // namespace lopt
