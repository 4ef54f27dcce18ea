#include "lopt/estimators/window_cpu.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "lopt/base/parallel.h"
#include "lopt/base/progress.h"
#include "lopt/estimators/lopt_state.h"
#include "lopt/estimators/replica_keys.h"

namespace lopt {
namespace {

// Replicas [first, first + rows) of a window. They advance in lockstep, in place.
class ReplicaGroup {
 public:
  ReplicaGroup(const LoptProblem& problem, const Window& window, const LoptState& state,
               int64_t first, int64_t rows, Workspace& scratch);

  void Run() {
    for (int64_t k = 0; k < window_.steps; ++k) {
      EvaluateTraining();
      if (problem_.MetaLossIsBeforeUpdate()) {
        RecordMetaLoss(k);
        Update();
      } else {
        Update();
        EvaluateAfterUpdate();
        RecordMetaLoss(k);
      }
      for (int64_t r = 0; r < rows_; ++r) {
        if (state_.CountStep(k, first_ + r, window_.trace)) {
          Restart(r);
        } else if (k + 1 < window_.steps &&
                   window_.theta.ChangesAt(state_.inner_step[first_ + r])) {
          Bind(r);
        }
      }
      NoteProgress();
    }
  }

 private:
  void Bind(int64_t r);
  void SetEpisodeKeys(int64_t r);
  void InitOptimizerState(int64_t r);
  void Evaluate(Split split, std::span<float> model_state, std::span<float> gradients);
  void SetStep(int64_t r, Key data, Key order);
  void EvaluateTraining();
  void EvaluateAfterUpdate();
  void RecordMetaLoss(int64_t k);
  void Update();
  void UpdateReplica(int64_t r, Workspace& scratch);
  void Restart(int64_t r);

  const LoptProblem& problem_;
  const TaskFamily& task_;
  const Window& window_;
  const LoptState& state_;
  const int64_t first_;
  const int64_t rows_;  // n
  Workspace& scratch_;
  std::span<float> config_;              // [n, C]; these three in the window's state
  std::span<float> params_;              // [n, P]
  std::span<float> model_state_;         // [n, M]
  std::span<float> gradients_;           // [n, P]; the rest in scratch
  std::span<float> losses_;              // [n]
  std::span<float> aux_;                 // [n, A], empty if not wanted
  std::span<float> discarded_;           // [n, M]: of evaluations that do not train
  std::span<Key> step_keys_;             // [n]: of the batches that are evaluated
  std::span<EpisodeStep> steps_;         // [n]: likewise
  std::span<EpisodeKeys> episode_keys_;  // [n]
  std::span<int64_t> restarts_;          // [n], inside the window
  std::vector<std::unique_ptr<UpdateRule>> rules_;
};

int64_t AuxSize(const LoptProblem& problem) {
  return problem.meta_loss_aux() ? problem.task().aux_layout().size() : 0;
}

ReplicaGroup::ReplicaGroup(const LoptProblem& problem, const Window& window, const LoptState& state,
                           int64_t first, int64_t rows, Workspace& scratch)
    : problem_(problem),
      task_(problem.task()),
      window_(window),
      state_(state),
      first_(first),
      rows_(rows),
      scratch_(scratch),
      config_(RowsOf(state.config, first, task_.config_layout().size(), rows)),
      params_(RowsOf(state.params, first, task_.params_layout().size(), rows)),
      model_state_(RowsOf(state.model_state, first, task_.model_state_layout().size(), rows)),
      gradients_(scratch.Take<float>(std::ssize(params_))),
      losses_(scratch.Take<float>(rows)),
      aux_(scratch.Take<float>(rows * AuxSize(problem))),
      discarded_(scratch.Take<float>(std::ssize(model_state_))),
      step_keys_(scratch.Take<Key>(rows)),
      steps_(scratch.Take<EpisodeStep>(rows)),
      episode_keys_(scratch.Take<EpisodeKeys>(rows)),
      restarts_(scratch.Take<int64_t>(rows)),
      rules_(static_cast<size_t>(rows)) {
  std::ranges::fill(restarts_, 0);
  for (int64_t r = 0; r < rows_; ++r) {
    Bind(r);
    SetEpisodeKeys(r);
    if (state.inner_step[first + r] == 0) {
      InitOptimizerState(r);
    }
  }
}

// Binds the replica's rule to its row of theta as it is now.
void ReplicaGroup::Bind(int64_t r) {
  const Workspace::Frame frame(scratch_);
  const auto row = scratch_.Take<float>(std::ssize(window_.theta.theta));
  window_.theta.Row(first_ + r, {restarts_[r], state_.inner_step[first_ + r]}, row);
  rules_[static_cast<size_t>(r)] = problem_.optimizer().Bind(task_.params_layout(), row);
}

void ReplicaGroup::SetEpisodeKeys(int64_t r) {
  episode_keys_[r] = state_.Keys(window_.keys[first_ + r], first_ + r);
}

// An episode that has not made a step yet begins under the row of the window that takes its first:
// what theta does to the optimizer's initial state is then credited to the perturbations of that
// window.
void ReplicaGroup::InitOptimizerState(int64_t r) {
  const LoptProblem::ReplicaRow row = state_.Row(problem_, first_ + r);
  rules_[static_cast<size_t>(r)]->InitState({}, row.params, row.optimizer_state);
}

void ReplicaGroup::Evaluate(Split split, std::span<float> model_state, std::span<float> gradients) {
  task_.Evaluate({.rows = rows_,
                  .config = config_,
                  .params = params_,
                  .model_state = model_state,
                  .split = split,
                  .keys = step_keys_,
                  .steps = steps_,
                  .examples = {},
                  .losses = losses_,
                  .gradients = gradients,
                  .aux = aux_},
                 scratch_);
}

// The batch of the present inner step.
void ReplicaGroup::SetStep(int64_t r, Key data, Key order) {
  const int64_t step = state_.inner_step[first_ + r];
  step_keys_[r] = FoldIn(data, static_cast<uint64_t>(step));
  steps_[r] = {order, step};
}

void ReplicaGroup::EvaluateTraining() {
  for (int64_t r = 0; r < rows_; ++r) {
    SetStep(r, episode_keys_[r].data, episode_keys_[r].order);
  }
  Evaluate(Split::kTrain, model_state_, gradients_);
}

// On the training batch or, where the meta-loss is that of a split, on a fresh batch of it.
void ReplicaGroup::EvaluateAfterUpdate() {
  const std::optional<Split>& split = problem_.meta_loss_split();
  for (int64_t r = 0; split && r < rows_; ++r) {
    SetStep(r, episode_keys_[r].meta_data, episode_keys_[r].meta_order);
  }
  std::ranges::copy(model_state_, discarded_.begin());
  Evaluate(split.value_or(Split::kTrain), discarded_, {});
}

// The meta-losses of step k from what was evaluated last.
void ReplicaGroup::RecordMetaLoss(int64_t k) {
  const int64_t aux_size = AuxSize(problem_);
  for (int64_t r = 0; r < rows_; ++r) {
    const float raw = aux_size > 0 ? aux_[r * aux_size + *problem_.meta_loss_aux()] : losses_[r];
    window_.trace->loss(k, first_ + r) =
        problem_.JudgeLoss(RowsOf(config_, r, task_.config_layout().size()), raw,
                           &window_.trace->non_finite(k, first_ + r));
  }
}

void ReplicaGroup::Update() {
  if (rows_ == 1) {
    UpdateReplica(0, scratch_);
    return;
  }
  ParallelFor(rows_, [this](int64_t r) {
    WorkspacePool::Lease lease(problem_.workspaces());
    UpdateReplica(r, *lease);
  });
}

void ReplicaGroup::UpdateReplica(int64_t r, Workspace& scratch) {
  const int64_t step = state_.inner_step[first_ + r];
  const LoptProblem::ReplicaRow row = state_.Row(problem_, first_ + r);
  rules_[static_cast<size_t>(r)]->Update(
      {.step = step, .num_steps = state_.NumSteps(first_ + r), .loss = losses_[r]},
      RowsOf(gradients_, r, std::ssize(row.params)), row.params, row.optimizer_state, scratch);
}

void ReplicaGroup::Restart(int64_t r) {
  const int64_t b = first_ + r;
  ++restarts_[r];
  if (window_.theta.ChangesAt(0)) {
    Bind(r);
  }
  const Key key = FoldIn2(window_.keys[b], kRestartDraw, state_.episode[b]);
  state_.FollowWith(b, problem_.BeginEpisode(key, window_.outer, *rules_[static_cast<size_t>(r)],
                                             state_.Row(problem_, b)));
  SetEpisodeKeys(r);
}

// Calls body(first, rows, scratch) for each group of replicas, in parallel.
void ForEachGroup(const LoptProblem& problem, int64_t replicas,
                  const std::function<void(int64_t, int64_t, Workspace&)>& body) {
  const int64_t group_rows = problem.GroupRows(replicas);
  ParallelFor((replicas + group_rows - 1) / group_rows, [&](int64_t group) {
    const int64_t first = group * group_rows;
    WorkspacePool::Lease lease(problem.workspaces());
    const Workspace::Frame frame(*lease);
    body(first, std::min(group_rows, replicas - first), *lease);
  });
}

}  // namespace

void RunWindowOnCpu(const LoptProblem& problem, const Window& window) {
  const LoptState state(problem, window.theta.rows, window.state);
  ForEachGroup(problem, window.theta.rows, [&](int64_t first, int64_t rows, Workspace& scratch) {
    ReplicaGroup(problem, window, state, first, rows, scratch).Run();
  });
}

void MetaLossOnCpu(const LoptProblem& problem, int64_t replicas, std::span<const Key> keys,
                   const UnrollState& state, std::span<double> loss) {
  const TaskFamily& task = problem.task();
  // Only read here.
  const LoptState view(problem, replicas, const_cast<UnrollState*>(&state));
  const int64_t config_size = task.config_layout().size();
  const int64_t model_state_size = task.model_state_layout().size();
  const int64_t aux_size = AuxSize(problem);
  ForEachGroup(problem, replicas, [&](int64_t first, int64_t rows, Workspace& scratch) {
    const auto losses = scratch.Take<float>(rows);
    const auto aux = scratch.Take<float>(rows * aux_size);
    const auto discarded = scratch.Take<float>(rows * model_state_size);
    std::ranges::copy(RowsOf(view.model_state, first, model_state_size, rows), discarded.begin());
    task.Evaluate({.rows = rows,
                   .config = RowsOf(view.config, first, config_size, rows),
                   .params = RowsOf(view.params, first, task.params_layout().size(), rows),
                   .model_state = discarded,
                   .split = problem.meta_loss_split().value_or(Split::kTrain),
                   .keys = keys.subspan(first, rows),
                   .examples = {},
                   .losses = losses,
                   .gradients = {},
                   .aux = aux},
                  scratch);
    for (int64_t r = 0; r < rows; ++r) {
      bool non_finite = false;
      loss[first + r] = problem.JudgeLoss(
          RowsOf(view.config, first + r, config_size),
          aux_size > 0 ? aux[r * aux_size + *problem.meta_loss_aux()] : losses[r], &non_finite);
    }
  });
}

}  // namespace lopt
