#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/eigen.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/metrics.h"
#include "lopt/base/workspace.h"
#include "lopt/learner/train/batches.h"
#include "lopt/learner/train/train_config.h"
#include "lopt/learner/train/train_optimizer.h"
#include "lopt/tasks/task_family.h"
#include "lopt/tasks/task_resources.h"

namespace lopt {

// All that changes in a training.
struct TrainState {
  int64_t step = 0;                  // updates made
  Eigen::VectorXf params = {};       // [P]
  Eigen::VectorXf model_state = {};  // [M]
  Eigen::VectorXf optimizer = {};    // [S]
};

// What a logical worker makes of its part of a batch: means over its examples.
struct WorkerStep {
  float loss = 0;                    // TaskEvaluation::losses
  Eigen::VectorXf aux = {};          // [A]
  Eigen::VectorXf gradient = {};     // [P]
  Eigen::VectorXf model_state = {};  // [M], after the evaluation
  Eigen::VectorXf records = {};      // TaskEvaluation::records of its part

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("loss", loss);
    visit("aux", aux);
    visit("gradient", gradient);
    visit("model_state", model_state);
    visit("records", records);
  }
};

// What metrics of all rows of the split train are called by, since loss/train is a batch's.
inline constexpr char kWholeTrain[] = "whole_train";

// A training of one model whose batches are shared out to logical workers. With one worker it is
// the training of evaluations (evaluation/inner_training.h) bit for bit. Immutable and thread-safe.
class Training {
 public:
  // Throws Error if something cannot be made, its data read, a key has no meaning for the task, or
  // the workers cannot share the task's batches evenly.
  explicit Training(const TrainConfig& config);

  // What it was made of.
  const TrainConfig& config() const { return config_; }
  // The config's task.
  const TaskFamily& task() const { return *task_; }
  // What the task was made with.
  const TaskResources& resources() const { return resources_; }
  // Keys of the config that may change on resume: TrainKeysFreeOnResume(), but for "steps" where
  // the optimizer's updates need the length of the training.
  std::vector<std::string> KeysFree() const;
  // What the task has read from files (TaskResources::DataChecksums).
  const std::string& data() const { return data_; }
  // Of TrainState::optimizer.
  const Layout& optimizer_state_layout() const { return rule_->state_layout(); }
  const Eigen::VectorXf& theta() const { return optimizer_->theta; }  // the optimizer's weights
  // What of this training is unlike those that the optimizer was trained on (UnlikeTrained).
  std::string UnlikeTrainings() const;
  // UpdateRule::EvalParams: the model that is judged and kept, [P].
  std::span<const float> EvalParams(const TrainState& state) const {
    return rule_->EvalParams(AsSpan(state.params), AsSpan(state.optimizer));
  }

  // Before the first update: params and model state, drawn or those of init_model, and a fresh
  // optimizer state. Throws Error if that file cannot be read or is not of such a model.
  TrainState Start() const;
  // Of these sizes, nothing set.
  TrainState UnsetState() const;
  // Sets params and model state to those of arrays params/..., model_state/.... Throws Error as
  // RowFromArrays does.
  void SetModel(const NamedArrays& arrays, TrainState* state) const;
  // What a worker makes of its part of the batch of step `step`, of these params and model state.
  // Worker w's examples are those of ExamplesOfWorker, part w of the batch of the step's key; what
  // it draws by itself, worker w > 0 draws with FoldIn(the step's key, w).
  WorkerStep Evaluate(int64_t worker, int64_t step, const Eigen::VectorXf& params,
                      const Eigen::VectorXf& model_state, Workspace& scratch) const;
  // Makes an update with what all workers made of its batch, in their order, at least one: losses,
  // gradients, aux outputs and model states are averaged in float64, and the model state learns
  // from the records of all. Returns the metrics loss/train, <aux>/train and gradient_norm.
  Metrics Update(std::span<const WorkerStep> workers, TrainState* state, Workspace& scratch) const;
  // The metrics loss/<split> and, where the task has one, accuracy/<split>, of all of eval_split.
  Metrics Judge(const TrainState& state, Workspace& scratch) const;

 private:
  TrainConfig config_;
  TaskResources resources_;
  std::shared_ptr<const TaskFamily> task_;
  std::string data_;
  std::shared_ptr<const TrainOptimizer> optimizer_;
  std::unique_ptr<const UpdateRule> rule_;
  std::shared_ptr<const Batches> batches_;
  Key key_;
  Eigen::VectorXf task_config_;
};

}  // namespace lopt
