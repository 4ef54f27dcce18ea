#include "lopt/estimators/window_cpu.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "lopt/base/parallel.h"
#include "lopt/estimators/lopt_state.h"
#include "lopt/estimators/window_steps.h"

namespace lopt {
namespace {

// The params [rows, P] that meta-losses of replicas [first, first + rows) after an update are of:
// those of the state or, of an optimizer that keeps an average of them, that, in scratch.
std::span<const float> JudgedParams(const LoptProblem& problem, const LoptState& state,
                                    int64_t first, int64_t rows, Workspace& scratch) {
  const int64_t size = problem.task().params_layout().size();
  const std::span<const float> params = RowsOf(state.params, first, size, rows);
  const std::span<const float> judged = problem.JudgedParams(state.Row(problem, first));
  if (judged.data() == params.data()) return params;
  const std::span<float> all = scratch.Take<float>(std::ssize(params));
  for (int64_t r = 0; r < rows; ++r) {
    std::ranges::copy(problem.JudgedParams(state.Row(problem, first + r)),
                      RowsOf(all, r, size).begin());
  }
  return all;
}

// Of replicas [first, first + rows) of a window, in place.
class HostExecutor final : public StepExecutor {
 public:
  HostExecutor(const LoptProblem& problem, const Window& window, const LoptState& state,
               int64_t first, int64_t rows, Workspace& scratch);

  std::span<const float> config() const { return config_; }

  void EvaluateTraining(const StepBatches& batches) override;
  void EvaluateMetaLoss(Split split, const StepBatches& batches) override;
  void GetResults(std::span<float> losses, std::span<float> aux) override;
  void Update(std::span<const ReplicaStep> steps) override;
  void ChangeTheta(int64_t r, const WindowStep& at) override;
  LoptProblem::Episode BeginEpisode(int64_t r, Key key) override;

 private:
  UpdateRule& RuleOf(int64_t r) { return *rules_[static_cast<size_t>(r)]; }
  void Evaluate(Split split, const StepBatches& batches, std::span<const float> params,
                std::span<float> model_state, std::span<float> gradients);
  void UpdateReplica(int64_t r, const ReplicaStep& step, Workspace& scratch);

  const LoptProblem& problem_;
  const TaskFamily& task_;
  const Window& window_;
  const LoptState& state_;
  const int64_t first_;
  const int64_t rows_;  // n
  Workspace& scratch_;
  std::span<float> config_;       // [n, C]; these three in the window's state
  std::span<float> params_;       // [n, P]
  std::span<float> model_state_;  // [n, M]
  std::span<float> gradients_;    // [n, P]; the rest in scratch
  std::span<float> losses_;       // [n]
  std::span<float> aux_;          // [n, A], empty if not wanted
  std::span<float> discarded_;    // [n, M]: of evaluations that do not train
  std::vector<std::unique_ptr<UpdateRule>> rules_;
};

HostExecutor::HostExecutor(const LoptProblem& problem, const Window& window, const LoptState& state,
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
      aux_(scratch.Take<float>(rows * problem.AuxSize())),
      discarded_(scratch.Take<float>(std::ssize(model_state_))),
      rules_(static_cast<size_t>(rows)) {
  for (int64_t r = 0; r < rows_; ++r) {
    const int64_t b = first + r;
    ChangeTheta(r, {.restarts = 0, .inner_step = state.inner_step[b]});
    // An episode that has not made a step yet begins under the row of the window that takes its
    // first: what theta does to the optimizer's initial state is then credited to the perturbations
    // of that window.
    if (state.inner_step[b] == 0) {
      const LoptProblem::ReplicaRow row = state_.Row(problem_, b);
      RuleOf(r).InitState({.num_steps = state.NumSteps(b)}, row.params, row.optimizer_state);
    }
  }
}

void HostExecutor::ChangeTheta(int64_t r, const WindowStep& at) {
  const Workspace::Frame frame(scratch_);
  const auto row = scratch_.Take<float>(std::ssize(window_.theta.theta));
  window_.theta.Row(first_ + r, at, row);
  rules_[static_cast<size_t>(r)] = problem_.optimizer().Bind(task_.params_layout(), row);
}

void HostExecutor::Evaluate(Split split, const StepBatches& batches, std::span<const float> params,
                            std::span<float> model_state, std::span<float> gradients) {
  task_.Evaluate({.rows = rows_,
                  .config = config_,
                  .params = params,
                  .model_state = model_state,
                  .split = split,
                  .keys = batches.keys,
                  .steps = batches.steps,
                  .examples = {},
                  .losses = losses_,
                  .gradients = gradients,
                  .aux = aux_},
                 scratch_);
}

void HostExecutor::EvaluateTraining(const StepBatches& batches) {
  Evaluate(Split::kTrain, batches, params_, model_state_, gradients_);
}

void HostExecutor::EvaluateMetaLoss(Split split, const StepBatches& batches) {
  const Workspace::Frame frame(scratch_);
  std::ranges::copy(model_state_, discarded_.begin());
  Evaluate(split, batches, JudgedParams(problem_, state_, first_, rows_, scratch_), discarded_, {});
}

void HostExecutor::GetResults(std::span<float> losses, std::span<float> aux) {
  if (!losses.empty()) std::ranges::copy(losses_, losses.begin());
  if (!aux.empty()) std::ranges::copy(aux_, aux.begin());
}

void HostExecutor::Update(std::span<const ReplicaStep> steps) {
  if (rows_ == 1) {
    UpdateReplica(0, steps[0], scratch_);
    return;
  }
  ParallelFor(rows_, [&](int64_t r) {
    WorkspacePool::Lease lease(problem_.workspaces());
    UpdateReplica(r, steps[static_cast<size_t>(r)], *lease);
  });
}

void HostExecutor::UpdateReplica(int64_t r, const ReplicaStep& step, Workspace& scratch) {
  const LoptProblem::ReplicaRow row = state_.Row(problem_, first_ + r);
  RuleOf(r).Update({.step = step.step, .num_steps = step.num_steps, .loss = losses_[r]},
                   RowsOf(gradients_, r, std::ssize(row.params)), row.params, row.optimizer_state,
                   scratch);
}

LoptProblem::Episode HostExecutor::BeginEpisode(int64_t r, Key key) {
  const LoptProblem::ReplicaRow row = state_.Row(problem_, first_ + r);
  const LoptProblem::Episode episode = problem_.DrawEpisode(key, window_.outer, row);
  RuleOf(r).InitState({.num_steps = TruncationSchedule::NumSteps(episode.length)}, row.params,
                      row.optimizer_state);
  return episode;
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
    HostExecutor executor(problem, window, state, first, rows, scratch);
    WindowSteps(problem, window, state, executor.config(), first, rows, scratch).Run(&executor);
  });
}

void MetaLossOnCpu(const LoptProblem& problem, int64_t replicas, std::span<const Key> keys,
                   const UnrollState& state, std::span<double> loss) {
  const TaskFamily& task = problem.task();
  // Only read here.
  const LoptState view(problem, replicas, const_cast<UnrollState*>(&state));
  const int64_t config_size = task.config_layout().size();
  const int64_t model_state_size = task.model_state_layout().size();
  const int64_t aux_size = problem.meta_loss_aux() ? task.aux_layout().size() : 0;
  ForEachGroup(problem, replicas, [&](int64_t first, int64_t rows, Workspace& scratch) {
    const auto losses = scratch.Take<float>(rows);
    const auto aux = scratch.Take<float>(rows * aux_size);
    const auto discarded = scratch.Take<float>(rows * model_state_size);
    std::ranges::copy(RowsOf(view.model_state, first, model_state_size, rows), discarded.begin());
    task.Evaluate({.rows = rows,
                   .config = RowsOf(view.config, first, config_size, rows),
                   .params = JudgedParams(problem, view, first, rows, scratch),
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
      loss[first + r] = problem.UnscaledLoss(RowsOf(view.config, first + r, config_size),
                                             RawMetaLoss(problem, losses, aux, r), &non_finite);
    }
  });
}

}  // namespace lopt
