#include "learner/meta_train_config.h"

#include "base/error.h"
#include "estimators/registry.h"
#include "learner/theta_opt.h"
#include "lopt/registry.h"
#include "tasks/registry.h"

namespace lopt {

void MetaTrainConfig::Visit(FieldVisitor& v) {
  v.Field("name", &name, {}, "Name of the experiment, for people.");
  v.Typed("learned_optimizer", &learned_optimizer, OptimizerRegistry().table(),
          "The optimizer whose weights theta are trained.");
  v.Typed("theta_opt", &theta_opt, ThetaOptRegistry().table(), "The optimizer that updates theta.");
  v.Typed("estimators", &estimators, EstimatorRegistry().table(),
          "Gradient estimators, each with its task. A worker's gradient is the weighted mean of "
          "those that it runs.");
  v.Field("workers", &workers, AtLeast(1),
          "Logical workers, whose gradients are averaged. Part of the experiment; threads and "
          "processes only execute them.");
  v.Field("meta_steps", &meta_steps, AtLeast(0), "Updates of theta in total.");
  v.Field("windows_per_update", &windows_per_update, AtLeast(1),
          "Windows that every estimator runs under the same theta before an update.");
  v.Field("seed", &seed, AtLeast(0), "Everything random in the run follows from it.");
  v.Field("non_finite_gradient", &non_finite_gradient, {"skip", "abort"},
          "What a gradient that is not finite does: skip counts the update and leaves theta as it "
          "is, abort ends the run.");
  v.Field("mode", &mode, {"sync", "async"},
          "sync: an update is the mean over all workers, the same bits on any number of processes. "
          "async: workers run free, an update takes batch_size gradients as they come; no bits are "
          "promised.");
  v.Field("batch_size", &batch_size, AtLeast(1), "Gradients of an update, in mode async.");
  v.Field("staleness", &staleness, AtLeast(0),
          "Updates that a gradient's weights may be behind when it is used, in mode async.");
  v.Field("staleness_policy", &staleness_policy, {"drop", "discount"},
          "What becomes of gradients that are behind further: dropped and counted, or used with "
          "weight 1 / (1 + updates behind).");
  v.Field("deadline_seconds", &deadline_seconds, AtLeast(0),
          "In mode sync an update goes ahead after this time without the workers that are late; 0: "
          "it waits for all. Runs with it are not reproducible bit for bit.");
  v.Field("quorum", &quorum, AtLeast(0),
          "Workers that an update needs at least when the deadline has passed.");
  v.Field("estimators_per_worker", &estimators_per_worker, AtLeast(0),
          "Estimators that each worker runs, fixed for the run; 0: all.");
  v.Field("estimator_placement", &estimator_placement, {"round-robin", "random"},
          "Which estimators these are: dealt out in turn, or drawn with the seed.");
  v.Field("worker_timeout_seconds", &worker_timeout_seconds, AtLeast(0),
          "A process of the job that is silent for so long ends the job; 0: never.");
  v.Field("gather_checkpoints", &gather_checkpoints,
          "Whether the first process writes all files of a checkpoint, for processes without a "
          "common file system.");
  v.Field("data_dir", &data_dir, {},
          "Directory with image data; empty: tasks generate the default data.");
  v.Field("isa", &isa, {}, "Instruction set of the kernels; empty: the best of the machine.");
  v.Field("checkpoint_seconds", &checkpoint_seconds, AtLeast(0),
          "A checkpoint is written when this much time has passed since the last; 0: not by time.");
  v.Field("checkpoint_steps", &checkpoint_steps, AtLeast(0),
          "A checkpoint is written after every so many updates; 0: not by updates.");
  v.Field("keep_last", &keep_last, AtLeast(1), "The newest checkpoints that are kept.");
  v.Field("keep_every", &keep_every, AtLeast(0),
          "Checkpoints at multiples of this many updates are kept for good; 0: none.");
  v.Field("metrics_steps", &metrics_steps, AtLeast(1),
          "Metrics are written for every so many-th update.");
  v.Field("eval_every", &eval_every, AtLeast(0),
          "After every so many updates theta trains held-out tasks; the losses are among the "
          "metrics, and the theta of the lowest is kept in theta_best.safetensors. 0: never.");
  v.Typed(
      "eval_tasks", &eval_tasks, TaskRegistry().table(),
      "The tasks of these evaluations; empty: those of the estimators. Their draws are those of "
      "no training.");
  v.Field("eval_steps", &eval_steps, AtLeast(1), "Inner steps of each of these trainings.");
  v.Field("eval_seeds", &eval_seeds, AtLeast(1), "Trainings of each of these tasks.");
}

void CheckCombinations(const MetaTrainConfig& config) {
  const MetaTrainConfig defaults;
  if (config.mode == "sync") {
    Require(config.batch_size == defaults.batch_size && config.staleness == defaults.staleness &&
                config.staleness_policy == defaults.staleness_policy,
            "batch_size, staleness and staleness_policy are for mode \"async\"; in mode \"sync\" "
            "an update is the mean over all workers, none of them stale");
  } else {
    Require(config.deadline_seconds == 0 && config.quorum == 0,
            "deadline_seconds and quorum are for mode \"sync\"; in mode \"async\" an update waits "
            "for batch_size gradients only");
  }
  Require((config.deadline_seconds > 0) == (config.quorum > 0),
          "deadline_seconds and quorum go together: the time after which an update goes ahead and "
          "the workers that it needs at least; got {} and {}",
          config.deadline_seconds, config.quorum);
  Require(config.quorum <= config.workers, "quorum is {}, but there are only {} workers",
          config.quorum, config.workers);
  const auto estimators = static_cast<int64_t>(config.estimators.size());
  Require(config.estimators_per_worker <= estimators,
          "estimators_per_worker is {}, but there are only {} estimators",
          config.estimators_per_worker, estimators);
  Require(config.estimators_per_worker == 0 || config.estimator_placement != "round-robin" ||
              config.estimators_per_worker * config.workers >= estimators,
          "{} workers with {} estimators each do not run all {} estimators; raise workers or "
          "estimators_per_worker",
          config.workers, config.estimators_per_worker, estimators);
}

const std::vector<std::string>& KeysFreeOnResume() {
  static const std::vector<std::string> keys = {"name",
                                                "meta_steps",
                                                "worker_timeout_seconds",
                                                "gather_checkpoints",
                                                "data_dir",
                                                "isa",
                                                "checkpoint_seconds",
                                                "checkpoint_steps",
                                                "keep_last",
                                                "keep_every",
                                                "metrics_steps",
                                                "eval_every",
                                                "eval_tasks",
                                                "eval_steps",
                                                "eval_seeds"};
  return keys;
}

}  // namespace lopt
