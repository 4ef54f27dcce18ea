#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/device.h"
#include "lopt/evaluation/held_out.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/worker.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/registry.h"

namespace lopt {

// One logical worker of an experiment.
struct LogicalWorker {
  Key key;
  Estimators estimators;  // null where it does not run one
};

// What a config describes, made. Immutable.
struct Experiment {
  // Throws Error if something cannot be made, its data read, the config's keys do not go together,
  // or there is no such device.
  explicit Experiment(const MetaTrainConfig& from) : Experiment(from, FindDevice(from.device)) {}
  // The same; windows run on this device, whichever the config names. Null: on the processor.
  Experiment(const MetaTrainConfig& from, const Device* device);

  // The learned optimizer's part of the resolved config.
  Config LearnedOptimizerConfig() const;
  // What the first `outer_steps` outer steps train on, with the estimators that some worker runs;
  // what one of them does not tell is unknown. Lengths are those of whole episodes.
  TrainedRange RangeOfTraining(int64_t outer_steps) const;
  // Throws Error if there is a data directory and nothing that was made of the resources reads it.
  void RequireDataDirUsed() const;
  // The weights of a learner of this experiment, with what a theta file says of them. `version` is
  // the program's.
  ThetaFile ThetaOf(const LearnerState& state, std::string version) const;

  MetaTrainConfig config;
  Config resolved;  // every key with its value
  Mode mode;
  const Device* device;  // that windows run on; null: on the processor
  TaskResources resources;
  std::shared_ptr<const LearnedOptimizer> optimizer;
  GradientLearner learner;
  Estimators estimators;
  std::string data;  // that the estimators' tasks read from files (TaskResources::DataChecksums)
  std::vector<std::string> estimator_names;  // "<index>_<task>"
  Key run_key;
  std::vector<LogicalWorker> workers;
};

// What eval_every and the keys after it say. Throws Error if no task is named and an estimator has
// none.
HeldOutOptions HeldOutOf(const MetaTrainConfig& config);

// Which of `estimators` estimators worker `worker` runs, ascending: all; or `per_worker` of them
// dealt out in turn, worker by worker; or that many drawn without replacement with FoldIn(worker's
// key, 2).
std::vector<int64_t> EstimatorsOfWorker(const MetaTrainConfig& config, int64_t worker);

}  // namespace lopt
