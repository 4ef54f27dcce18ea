#include "lopt/learner/train/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/progress.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/evaluation/training_draw.h"
#include "lopt/learner/aggregation.h"
#include "lopt/learner/train/trained_model.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

// The mean of a row that each worker has, in the order of the workers.
Eigen::VectorXf MeanOfWorkers(std::span<const WorkerStep> workers,
                              Eigen::VectorXf WorkerStep::*row) {
  std::vector<Addend> rows;
  for (const WorkerStep& worker : workers) {
    rows.push_back({.first = std::ssize(rows), .row = AsSpan(worker.*row)});
  }
  const Eigen::VectorXd sum = AddUp(GradientSum::kInOrder, rows, (workers.front().*row).size());
  return (sum / static_cast<double>(workers.size())).cast<float>();
}

// Numbers of a worker's records.
int64_t RecordsOfWorker(const TaskFamily& task, int64_t workers) {
  const ProbeRecords records = task.parts().records.value_or(ProbeRecords());
  return records.probes / workers * records.size;
}

void CheckProbes(const std::optional<ProbeRecords>& records, int64_t workers) {
  Require(records || workers == 1,
          "{} workers cannot share the probes of families that differ in them; wanted 1 worker, or "
          "families whose augmentations have the same probes and depth",
          workers);
  Require(!records || records->probes % workers == 0,
          "{} workers cannot share {} probes evenly; wanted a number of workers that divides the "
          "augmentation's probes",
          workers, records.value_or(ProbeRecords()).probes);
}

}  // namespace

Training::Training(const TrainConfig& config)
    : config_(CheckOptions("training", config)),
      resources_(config.data_dir),
      task_(TaskRegistry().Make(config.task, resources_)),
      data_(resources_.DataChecksums()),
      optimizer_(TrainOptimizerRegistry().Make(config.optimizer)),
      rule_(optimizer_->optimizer->Bind(task_->params_layout(), AsSpan(optimizer_->theta))),
      batches_(BatchesRegistry().Make(config.batches)),
      key_(KeyFromSeed(static_cast<uint64_t>(config.seed))),
      task_config_(task_->config_layout().size()) {
  Require(config.data_dir.empty() || resources_.data_dir_used(),
          "data_dir is {}, but the task does not read from it", config.data_dir);
  CheckBatches(*batches_, task_->parts().data, config.workers);
  CheckProbes(task_->parts().records, config.workers);
  task_->Sample(FoldIn(key_, TrainingDraw::kTask), AsSpan(task_config_));
}

std::vector<std::string> Training::KeysFree() const {
  std::vector<std::string> keys = TrainKeysFreeOnResume();
  if (!optimizer_->optimizer->needs_num_steps().empty()) std::erase(keys, "steps");
  return keys;
}

std::string Training::UnlikeTrainings() const {
  std::vector<int64_t> tensors;
  for (const LayoutEntry& entry : task_->params_layout().entries()) {
    tensors.push_back(NumElements(entry.shape));
  }
  return UnlikeTrained(optimizer_->trained_range, config_.steps, tensors,
                       task_->parts().data.batch_size);
}

TrainState Training::Start() const {
  TrainState state = UnsetState();
  if (config_.init_model.empty()) {
    task_->Init(AsSpan(task_config_), FoldIn(key_, TrainingDraw::kParams), AsSpan(state.params),
                AsSpan(state.model_state));
  } else {
    ReadModelRows(config_.init_model, config_.task.Type(), *task_, AsSpan(state.params),
                  AsSpan(state.model_state));
  }
  rule_->InitState({.num_steps = config_.steps}, AsSpan(state.params), AsSpan(state.optimizer));
  return state;
}

TrainState Training::UnsetState() const {
  return {.params = Eigen::VectorXf(task_->params_layout().size()),
          .model_state = Eigen::VectorXf(task_->model_state_layout().size()),
          .optimizer = Eigen::VectorXf(rule_->state_layout().size())};
}

void Training::SetModel(const NamedArrays& arrays, TrainState* state) const {
  RowFromArrays(task_->params_layout(), arrays, "params/", AsSpan(state->params));
  RowFromArrays(task_->model_state_layout(), arrays, "model_state/", AsSpan(state->model_state));
}

WorkerStep Training::Evaluate(int64_t worker, int64_t step, const Eigen::VectorXf& params,
                              const Eigen::VectorXf& model_state, Workspace& scratch) const {
  const Workspace::Frame frame(scratch);
  Key key = FoldIn(FoldIn(key_, TrainingDraw::kData), static_cast<uint64_t>(step));
  const EpisodeStep at{.order = FoldIn(key_, TrainingDraw::kOrder), .step = step};
  const std::span<const int32_t> examples =
      ExamplesOfWorker(*batches_, task_->parts().data, config_.workers, worker, key, at, scratch);
  const BatchPart part{.key = key, .index = worker, .count = config_.workers};
  if (worker > 0) key = FoldIn(key, static_cast<uint64_t>(worker));
  WorkerStep result{.aux = Eigen::VectorXf(task_->aux_layout().size()),
                    .gradient = Eigen::VectorXf(params.size()),
                    .model_state = model_state,
                    .records = Eigen::VectorXf(RecordsOfWorker(*task_, config_.workers))};
  task_->Evaluate({.config = AsSpan(task_config_),
                   .params = AsSpan(params),
                   .model_state = AsSpan(result.model_state),
                   .split = Split::kTrain,
                   .keys = {&key, 1},
                   .steps = {&at, 1},
                   .examples = examples,
                   .shares = {.parts = {&part, 1}, .records = AsSpan(result.records)},
                   .losses = {&result.loss, 1},
                   .gradients = AsSpan(result.gradient),
                   .aux = AsSpan(result.aux)},
                  scratch);
  NoteProgress();
  return result;
}

Metrics Training::Update(std::span<const WorkerStep> workers, TrainState* state,
                         Workspace& scratch) const {
  double loss = 0;
  for (const WorkerStep& worker : workers) loss += worker.loss;
  loss /= static_cast<double>(workers.size());
  const Eigen::VectorXf gradient = MeanOfWorkers(workers, &WorkerStep::gradient);
  const Eigen::VectorXf aux = MeanOfWorkers(workers, &WorkerStep::aux);
  state->model_state = MeanOfWorkers(workers, &WorkerStep::model_state);
  std::vector<float> records;
  for (const WorkerStep& worker : workers) {
    records.insert(records.end(), worker.records.begin(), worker.records.end());
  }
  if (!records.empty()) {
    task_->Learn(AsSpan(task_config_), records, AsSpan(state->model_state), scratch);
  }
  rule_->Update({.step = state->step, .num_steps = config_.steps, .loss = static_cast<float>(loss)},
                AsSpan(gradient), AsSpan(state->params), AsSpan(state->optimizer), scratch);
  ++state->step;
  Metrics metrics = {{"loss/train", loss}, {"gradient_norm", gradient.cast<double>().norm()}};
  for (const LayoutEntry& entry : task_->aux_layout().entries()) {
    metrics[entry.name + "/train"] = aux[entry.offset];
  }
  return metrics;
}

Metrics Training::Judge(const TrainState& state, Workspace& scratch) const {
  const SplitScore score =
      JudgeOnSplit(*task_, AsSpan(task_config_), EvalParams(state), AsSpan(state.model_state),
                   config_.eval_split, FoldIn(key_, TrainingDraw::kJudge), scratch);
  // loss/train and accuracy/train are those of batches.
  const std::string split(config_.eval_split == Split::kTrain ? kWholeTrain
                                                              : ToString(config_.eval_split));
  Metrics metrics = {{"loss/" + split, score.loss}};
  if (!std::isnan(score.accuracy)) metrics["accuracy/" + split] = score.accuracy;
  return metrics;
}

}  // namespace lopt
