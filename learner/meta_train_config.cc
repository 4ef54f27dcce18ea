#include "lopt/learner/meta_train_config.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "lopt/base/error.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/theta_opt.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/registry.h"

namespace lopt {

void MetaTrainConfig::Visit(FieldVisitor& v) {
  v.FreeOnResume().Field("name", &name, "Name of the experiment, for people.");
  v.Typed("learned_optimizer", &learned_optimizer, OptimizerRegistry().table(),
          "The optimizer whose weights theta are trained.");
  v.Field("init_theta", &init_theta,
          "Theta file that the run starts from, relative to the working directory, with a fresh "
          "theta_opt; it is read at the start of the run alone. Empty: theta is drawn.");
  v.Field("frozen", &frozen,
          "Regular expressions: the tensors of theta whose whole name matches one are not "
          "trained.");
  v.Typed("theta_opt", &theta_opt, ThetaOptTypes(), "The optimizer that updates theta.");
  v.Typed("estimators", &estimators, EstimatorRegistry().table(),
          "Gradient estimators, each with its task. A worker's gradient is the weighted mean of "
          "those that it runs.");
  v.Choice("weighting", &weighting, kWeightings,
           "How the estimators' gradients become one: fixed takes their mean with the weights as "
           "they are, equal_norm first divides each by a running mean of its norm.");
  v.Choice("gradient_sum", &gradient_sum, kGradientSums,
           "How the workers' gradients are added up, in float64: in_order, one worker after the "
           "other; tree, as a binary tree over the workers, of which each process adds up its own: "
           "with many workers a process the learner has less to do. Another result by rounding, "
           "the same on any number of processes. In mode Sync.");
  v.Field("workers", &workers, Between(1, 100000),
          "Logical workers, whose gradients are averaged. Part of the experiment; threads and "
          "processes only execute them.");
  v.FreeOnResume().Field("meta_steps", &meta_steps, AtLeast(0), "Updates of theta in total.");
  v.Field("windows_per_update", &windows_per_update, Between(1, 1000000),
          "Windows that every estimator runs under the same theta before an update.");
  v.Field("seed", &seed, AtLeast(0), "Everything random in the run follows from it.");
  v.Choice("non_finite_gradient", &non_finite_gradient, kNonFiniteGradients,
           "What a gradient that is not finite does: skip counts the update and leaves theta as it "
           "is, abort ends the run.");
  v.Typed("mode", &mode, ModeRegistry().table(), "How updates are made of the workers' gradients.");
  for (const char* name : {"batch_size", "staleness", "staleness_policy"}) {
    v.Moved(name, R"(a key of mode: "mode": {"type": "Async", ...})");
  }
  for (const char* name : {"deadline_seconds", "quorum"}) {
    v.Moved(name, R"(a key of mode: "mode": {"type": "Sync", ...})");
  }
  v.Field("estimators_per_worker", &estimators_per_worker, AtLeast(0),
          "Estimators that each worker runs, fixed for the run; 0: all.");
  v.Choice("estimator_placement", &estimator_placement, kEstimatorPlacements,
           "Which estimators these are: dealt out in turn, or drawn with the seed.");
  VisitTimeouts(v);
  v.FreeOnResume().Field(
      "gather_checkpoints", &gather_checkpoints,
      "Whether the first process writes all files of a checkpoint, for processes without a "
      "common file system.");
  VisitMachine(v);
  v.FreeOnResume().Field(
      "device", &device,
      "What runs the estimators' windows: cpu, the processor; cuda, NVIDIA GPUs, of which each "
      "process of the job takes one; cuda:<n>, the GPU of this number; emulated, the kernels for "
      "GPUs on the processor, slowly. To resume on another one, pass --allow-isa-change.");
  VisitIntervals(v);
  v.FreeOnResume().Field("worker_metrics", &worker_metrics, AtLeast(0),
                         "Up to so many workers the metrics have the inner steps of each worker; "
                         "with more, and with 0, those of all together.");
  v.FreeOnResume().Field(
      "eval_every", &eval_every, AtLeast(0),
      "After every so many updates theta trains held-out tasks; the losses on the split "
      "outer_valid are among the metrics, and the theta of the lowest is kept in "
      "theta_best.safetensors. 0: never.");
  v.FreeOnResume().Typed(
      "eval_tasks", &eval_tasks, TaskRegistry().table(),
      "The tasks of these evaluations; empty: those of the estimators. Their draws are those of "
      "no training.");
  v.FreeOnResume().Field("eval_steps", &eval_steps, Between(1, 1e7),
                         "Inner steps of each of these trainings.");
  v.FreeOnResume().Field("eval_seeds", &eval_seeds, Between(1, 10000),
                         "Trainings of each of these tasks.");
}

Config InTodaysKeys(const Config& config) {
  nlohmann::ordered_json json = config.json();
  const auto estimators = json.find("estimators");
  if (estimators == json.end() || !estimators->is_array()) return config;
  for (nlohmann::ordered_json& estimator : *estimators) {
    if (!estimator.is_object() || estimator.contains("lengths")) continue;
    nlohmann::ordered_json renamed = nlohmann::ordered_json::object();
    for (const auto& [key, value] : estimator.items()) {
      renamed[key == "schedule" ? "lengths" : key] = value;
    }
    estimator = std::move(renamed);
  }
  return Config::FromJson(std::move(json), config.path());
}

MetaTrainConfig Resolved(MetaTrainConfig config) {
  config.theta_opt = ResolveThetaOpt(config.theta_opt, config.meta_steps);
  return config;
}

void CheckConfig(const MetaTrainConfig& config) {
  CheckOptions("meta-training", config);
  Require(!config.estimators.empty(), "estimators: must name at least one estimator");
  const Mode mode = *ModeRegistry().Make(config.mode);
  if (const auto* sync = std::get_if<SyncOptions>(&mode)) {
    Require(sync->quorum <= config.workers, "mode.quorum is {}, but there are only {} workers",
            sync->quorum, config.workers);
  }
  Require(config.gradient_sum == GradientSum::kInOrder || std::holds_alternative<SyncOptions>(mode),
          "gradient_sum is tree, but mode Async takes gradients as they come; valid choices: "
          "gradient_sum in_order, or mode Sync");
  const auto estimators = static_cast<int64_t>(config.estimators.size());
  Require(config.estimators_per_worker <= estimators,
          "estimators_per_worker is {}, but there are only {} estimators",
          config.estimators_per_worker, estimators);
  Require(config.estimators_per_worker == 0 ||
              config.estimator_placement != EstimatorPlacement::kRoundRobin ||
              config.estimators_per_worker * config.workers >= estimators,
          "{} workers with {} estimators each do not run all {} estimators; raise workers or "
          "estimators_per_worker",
          config.workers, config.estimators_per_worker, estimators);
}

std::vector<std::string> KeysFreeOnResume() {
  return KeysFreeOnResume([](FieldVisitor& v) { MetaTrainConfig().Visit(v); });
}

}  // namespace lopt
