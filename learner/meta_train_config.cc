#include "lopt/learner/meta_train_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "lopt/base/device.h"
#include "lopt/base/error.h"
#include "lopt/base/option_words.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/theta_opt.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

using Json = nlohmann::ordered_json;

// In its place, unless there is one of the new name already.
void RenameKey(std::string_view old, std::string_view today, Json* object) {
  if (!object->is_object() || !object->contains(old) || object->contains(today)) return;
  Json renamed = Json::object();
  for (const auto& [key, value] : object->items()) {
    renamed[key == old ? std::string(today) : key] = value;
  }
  *object = std::move(renamed);
}

// Other types, also of plug-ins, may have keys of their own that are called as Adam's were.
bool IsAdam(const Json& theta_opt) {
  if (!theta_opt.is_object() || !theta_opt.contains("type")) return false;
  return theta_opt["type"] == "Adam" || theta_opt["type"] == "AdamW";
}

constexpr const char* kSyncKeys[] = {"deadline_seconds", "quorum"};
constexpr const char* kAsyncKeys[] = {"batch_size", "staleness", "staleness_policy"};

// Out of an object, into another one if that is to have it.
void MoveKey(const char* key, bool keep, Json* from, Json* to) {
  if (!from->contains(key)) return;
  if (keep) (*to)[key] = (*from)[key];
  from->erase(key);
}

// A mode was a word, and the keys of both modes, of which only its own had an effect, stood beside
// it.
void MakeModeAnObject(Json* config) {
  if (!config->contains("mode")) return;
  const Json word = (*config)["mode"];
  if (word != "sync" && word != "async") return;
  Json mode = {{"type", word == "sync" ? "Sync" : "Async"}};
  for (const char* key : kAsyncKeys) MoveKey(key, word == "async", config, &mode);
  for (const char* key : kSyncKeys) MoveKey(key, word == "sync", config, &mode);
  (*config)["mode"] = std::move(mode);
}

// FullES took both keys before, and the first had no effect.
void RemoveUselessClip(Json* estimator) {
  const auto has = [&](const char* key) {
    return estimator->contains(key) && !(*estimator)[key].is_null();
  };
  const bool full_es = has("type") && (*estimator)["type"] == "FullES";
  if (full_es && has("clip_loss_diff") && has("sign_delta_loss_scalar")) {
    estimator->erase("clip_loss_diff");
  }
}

}  // namespace

void MetaTrainConfig::Visit(FieldVisitor& v) {
  v.FreeOnResume().Field("name", &name, "Name of the experiment, for people.");
  v.Typed("learned_optimizer", &learned_optimizer, OptimizerRegistry().table(),
          "The optimizer whose weights theta are trained.");
  v.Field("init_theta", &init_theta,
          "Theta file to start from, relative to the working directory, with a fresh theta_opt; "
          "read at the start alone. Empty: theta is drawn.");
  v.Field("frozen", &frozen,
          "Regular expressions: tensors of theta whose whole name matches one are not trained.");
  v.Typed("theta_opt", &theta_opt, ThetaOptTypes(), "The optimizer that updates theta.");
  v.Typed("estimators", &estimators, EstimatorRegistry().table(),
          "Gradient estimators, each with its task. A worker's gradient is the weighted mean of "
          "those that it runs.");
  v.Choice("weighting", &weighting, kWeightings,
           "How the estimators' gradients become one: fixed takes their weighted mean, equal_norm "
           "first divides each by a running mean of its norm.");
  v.Choice("gradient_sum", &gradient_sum, kGradientSums,
           "How the workers' gradients are added up, in float64: one after the other (in_order), "
           "or as a binary tree of which each process adds up its own workers' part (tree), which "
           "leaves the learner less to do. The two differ by rounding. tree: mode Sync only.");
  v.Field("workers", &workers, Between(1, 100000),
          "Logical workers, whose gradients are averaged. Part of the experiment; threads and "
          "processes only execute them.");
  v.FreeOnResume().Field("meta_steps", &meta_steps, AtLeast(0), "Updates of theta in total.");
  v.Field("windows_per_update", &windows_per_update, Between(1, 1000000),
          "Windows that every estimator runs under the same theta before an update.");
  v.Field("seed", &seed, AtLeast(0), "Everything random in the run follows from it.");
  v.Choice("non_finite_gradient", &non_finite_gradient, kNonFiniteGradients,
           "At a gradient that is not finite: skip counts the update and leaves theta as it is, "
           "abort ends the run.");
  v.Typed("mode", &mode, ModeRegistry().table(), "How updates are made of the workers' gradients.");
  for (const char* name : kAsyncKeys) {
    v.Moved(name, R"(a key of mode: "mode": {"type": "Async", ...})");
  }
  for (const char* name : kSyncKeys) {
    v.Moved(name, R"(a key of mode: "mode": {"type": "Sync", ...})");
  }
  v.Field("estimators_per_worker", &estimators_per_worker, AtLeast(0),
          "Estimators that each worker runs, fixed for the run; 0: all. With 1 and the weighting "
          "fixed, their weights have no effect.");
  v.Choice("estimator_placement", &estimator_placement, kEstimatorPlacements,
           "How they are chosen: dealt out in turn, or drawn with the seed.");
  VisitTimeouts(v);
  v.FreeOnResume().Field("gather_checkpoints", &gather_checkpoints,
                         "Whether the first process writes all files of a checkpoint; needed "
                         "without a common file system.");
  VisitMachine(v);
  v.FreeOnResume().Field(
      "device", &device,
      fmt::format(
          "What runs the estimators' windows: cpu; cuda, one NVIDIA GPU for each process of "
          "the job; cuda:N, GPU number N; emulated, the kernels for GPUs on the processor, "
          "slowly. To resume on another one, pass {}.",
          FlagWords("allow-isa-change"))
          .c_str());
  VisitIntervals(v);
  v.FreeOnResume().Field("worker_metrics", &worker_metrics, AtLeast(0),
                         "Most workers for which the metrics have the inner steps of each; with "
                         "more, those of all together.");
  v.FreeOnResume().Field(
      "eval_every", &eval_every, AtLeast(0),
      "Updates between evaluations, in which theta trains held-out tasks. The losses on the split "
      "outer_valid are among the metrics, and the theta of the lowest is kept in "
      "theta_best.safetensors. 0: no evaluations.");
  v.FreeOnResume().Typed(
      "eval_tasks", &eval_tasks, TaskRegistry().table(),
      "Their tasks; empty: those of the estimators, with draws that no window sees. A task that "
      "several estimators share is judged, and counts, for each of them.");
  v.FreeOnResume().Field("eval_steps", &eval_steps, Between(1, 1e7),
                         "Inner steps of each training.");
  v.FreeOnResume().Field("eval_seeds", &eval_seeds, Between(1, 10000), "Trainings of each task.");
}

Config InTodaysKeys(const Config& config) {
  if (config.empty()) return config;
  Json json = config.json();
  if (json.contains("estimators") && json["estimators"].is_array()) {
    for (Json& estimator : json["estimators"]) {
      RenameKey("schedule", "lengths", &estimator);
      RemoveUselessClip(&estimator);
    }
  }
  if (json.contains("theta_opt") && IsAdam(json["theta_opt"])) {
    RenameKey("b1", "beta1", &json["theta_opt"]);
    RenameKey("b2", "beta2", &json["theta_opt"]);
  }
  MakeModeAnObject(&json);
  return Config::FromJson(std::move(json), config.path());
}

MetaTrainConfig Resolved(MetaTrainConfig config) {
  config.theta_opt = ResolveThetaOpt(config.theta_opt, config.meta_steps);
  return config;
}

void CheckConfig(const MetaTrainConfig& config) {
  CheckOptions("meta-training", config);
  CheckDeviceName(config.device);  // also where this process opens none
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
