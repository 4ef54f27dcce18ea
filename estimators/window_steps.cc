#include "lopt/estimators/window_steps.h"

#include <optional>

#include "lopt/base/progress.h"

namespace lopt {
namespace {

// The optimizer states [n, S] of n replicas, with the host; empty where they note nothing.
std::span<const float> NotedStates(const LoptProblem& problem, const Window& window, int64_t first,
                                   int64_t rows) {
  if (problem.optimizer_notes().empty()) return {};
  return RowsOf(window.state->At("optimizer_state").As<float>(), first,
                problem.optimizer_state_layout().size(), rows);
}

}  // namespace

WindowSteps::WindowSteps(const LoptProblem& problem, const Window& window,
                         const LoptCounters& counters, std::span<const float> config, int64_t first,
                         int64_t rows, Workspace& scratch)
    : problem_(problem),
      window_(window),
      counters_(counters),
      config_(config),
      first_(first),
      rows_(rows),
      steps_(scratch.Take<ReplicaStep>(rows)),
      batch_keys_(scratch.Take<Key>(rows)),
      batch_steps_(scratch.Take<EpisodeStep>(rows)),
      losses_(scratch.Take<float>(problem.meta_loss_aux() ? 0 : rows)),
      aux_(scratch.Take<float>(rows * problem.AuxSize())),
      optimizer_state_(NotedStates(problem, window, first, rows)) {
  for (int64_t r = 0; r < rows_; ++r) {
    steps_[r].restarts = 0;
    SetEpisode(r);
  }
}

void WindowSteps::Run(StepExecutor* executor) {
  const std::optional<Split>& split = problem_.meta_loss_split();
  for (int64_t k = 0; k < window_.steps; ++k) {
    SetBatches(&EpisodeKeys::data, &EpisodeKeys::order);
    executor->EvaluateTraining({batch_keys_, batch_steps_});
    if (problem_.MetaLossIsBeforeUpdate()) {
      RecordMetaLosses(k, executor);
      executor->Update(steps_);
    } else {
      executor->Update(steps_);
      // On the training batch or, where the meta-loss is that of a split, on a fresh batch of it.
      if (split) SetBatches(&EpisodeKeys::meta_data, &EpisodeKeys::meta_order);
      executor->EvaluateMetaLoss(split.value_or(Split::kTrain), {batch_keys_, batch_steps_});
      RecordMetaLosses(k, executor);
    }
    Record(k, problem_.optimizer_notes(), problem_.task_notes().size(), optimizer_state_);
    for (int64_t r = 0; r < rows_; ++r) {
      FinishStep(k, r, executor);
    }
    NoteProgress();
  }
}

void WindowSteps::SetEpisode(int64_t r) {
  const int64_t b = first_ + r;
  steps_[r].keys = counters_.Keys(window_.keys[b], b);
  steps_[r].step = counters_.inner_step[b];
  steps_[r].num_steps = counters_.NumSteps(b);
}

void WindowSteps::SetBatches(Key EpisodeKeys::*data, Key EpisodeKeys::*order) {
  for (int64_t r = 0; r < rows_; ++r) {
    const ReplicaStep& of = steps_[r];
    batch_keys_[r] = FoldIn(of.keys.*data, static_cast<uint64_t>(of.step));
    batch_steps_[r] = {of.keys.*order, of.step};
  }
}

// The meta-losses of step k from what was evaluated last.
void WindowSteps::RecordMetaLosses(int64_t k, StepExecutor* executor) {
  executor->GetResults(losses_, aux_);
  const int64_t config_size = problem_.task().config_layout().size();
  for (int64_t r = 0; r < rows_; ++r) {
    window_.trace->loss(k, first_ + r) =
        problem_.JudgeLoss(RowsOf(config_, r, config_size), RawMetaLoss(problem_, losses_, aux_, r),
                           &window_.trace->non_finite(k, first_ + r));
  }
  Record(k, problem_.task_notes(), 0, aux_);
}

void WindowSteps::Record(int64_t k, std::span<const Note> notes, size_t first_noted,
                         std::span<const float> rows) {
  const int64_t size = std::ssize(rows) / rows_;
  for (size_t i = 0; i < notes.size(); ++i) {
    Eigen::ArrayXXf& values = window_.trace->noted[first_noted + i].values;
    for (int64_t r = 0; r < rows_; ++r) {
      values(k, first_ + r) = rows[static_cast<size_t>(r * size + notes[i].offset)];
    }
  }
}

void WindowSteps::FinishStep(int64_t k, int64_t r, StepExecutor* executor) {
  const int64_t b = first_ + r;
  if (counters_.CountStep(k, b, window_.trace)) {
    ++steps_[r].restarts;
    if (window_.theta.ChangesAt(0)) {
      executor->ChangeTheta(r, {.restarts = steps_[r].restarts, .inner_step = 0});
    }
    const Key key = FoldIn2(window_.keys[b], kRestartDraw, counters_.episode[b]);
    counters_.FollowWith(b, executor->BeginEpisode(r, key));
    SetEpisode(r);
    return;
  }
  steps_[r].step = counters_.inner_step[b];
  if (k + 1 < window_.steps && window_.theta.ChangesAt(steps_[r].step)) {
    executor->ChangeTheta(r, {.restarts = steps_[r].restarts, .inner_step = steps_[r].step});
  }
}

}  // namespace lopt
