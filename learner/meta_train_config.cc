#include "learner/meta_train_config.h"

#include "estimators/registry.h"
#include "learner/theta_opt.h"
#include "lopt/registry.h"

namespace lopt {

void MetaTrainConfig::Visit(FieldVisitor& v) {
  v.Field("name", &name, {}, "Name of the experiment, for people.");
  v.Typed("learned_optimizer", &learned_optimizer, OptimizerRegistry().table(),
          "The optimizer whose weights theta are trained.");
  v.Typed("theta_opt", &theta_opt, ThetaOptRegistry().table(), "The optimizer that updates theta.");
  v.Typed("estimators", &estimators, EstimatorRegistry().table(),
          "Gradient estimators, each with its task. Every worker runs all; their weighted mean is "
          "its gradient.");
  v.Field("workers", &workers, AtLeast(1),
          "Logical workers, whose gradients are averaged. Part of the experiment; threads only "
          "execute them.");
  v.Field("meta_steps", &meta_steps, AtLeast(0), "Updates of theta in total.");
  v.Field("windows_per_update", &windows_per_update, AtLeast(1),
          "Windows that every estimator runs under the same theta before an update.");
  v.Field("seed", &seed, AtLeast(0), "Everything random in the run follows from it.");
  v.Field("non_finite_gradient", &non_finite_gradient, {"skip", "abort"},
          "What a gradient that is not finite does: skip counts the update and leaves theta as it "
          "is, abort ends the run.");
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
}

const std::vector<std::string>& KeysFreeOnResume() {
  static const std::vector<std::string> keys = {
      "name",      "meta_steps", "data_dir",     "isa", "checkpoint_seconds", "checkpoint_steps",
      "keep_last", "keep_every", "metrics_steps"};
  return keys;
}

}  // namespace lopt
