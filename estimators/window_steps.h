#pragma once

#include <cstdint>
#include <span>

#include "lopt/base/workspace.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/lopt_state.h"
#include "lopt/estimators/replica_keys.h"
#include "lopt/estimators/theta_rows.h"

namespace lopt {

// The batches of one inner step, a row for each replica.
struct StepBatches {
  std::span<const Key> keys;
  std::span<const EpisodeStep> steps;
};

// What an inner step is for one replica.
struct ReplicaStep {
  EpisodeKeys keys;
  int64_t step = 0;       // of the episode, 0-based
  int64_t num_steps = 0;  // StepInfo::num_steps
  int64_t restarts = 0;   // episodes begun inside the window
};

// What the inner steps of n replicas run on, such as the host or a device. It holds their params,
// gradients and states; `r` counts them from 0.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;

  // The losses and gradients of all on batches of the training split. Model states advance.
  virtual void EvaluateTraining(const StepBatches& batches) = 0;
  // The losses of all on batches of a split. Nothing else changes.
  virtual void EvaluateMetaLoss(Split split, const StepBatches& batches) = 0;
  // The losses [n] and the aux outputs [n, A] of the last evaluation; either may be empty if it is
  // not wanted.
  virtual void GetResults(std::span<float> losses, std::span<float> aux) = 0;
  // The update of all with the gradients of EvaluateTraining. steps [n].
  virtual void Update(std::span<const ReplicaStep> steps) = 0;
  // From this step on the replica runs under another row of theta.
  virtual void ChangeTheta(int64_t r, const WindowStep& at) = 0;
  // Draws a new episode into the replica's arrays.
  virtual LoptProblem::Episode BeginEpisode(int64_t r, Key key) = 0;

 protected:
  StepExecutor() = default;
};

// The raw meta-loss of replica r, out of the losses [n] of an evaluation or its aux outputs [n, A],
// whichever it is.
inline float RawMetaLoss(const LoptProblem& problem, std::span<const float> losses,
                         std::span<const float> aux, int64_t r) {
  const auto& of_aux = problem.meta_loss_aux();
  return of_aux ? aux[r * problem.AuxSize() + *of_aux] : losses[r];
}

// The inner steps of replicas [first, first + n) of a window, whatever they run on: which batches
// they take, when the meta-loss is taken, when an episode ends and what the next draws from.
class WindowSteps {
 public:
  // `config` [n, C] are the tasks of the replicas, on the host. All outlive this.
  WindowSteps(const LoptProblem& problem, const Window& window, const LoptCounters& counters,
              std::span<const float> config, int64_t first, int64_t rows, Workspace& scratch);

  // Runs them and fills in the window's trace.
  void Run(StepExecutor* executor);

 private:
  void SetBatches(Key EpisodeKeys::*data, Key EpisodeKeys::*order);
  void SetEpisode(int64_t r);
  void RecordMetaLosses(int64_t k, StepExecutor* executor);
  // Takes the notes [n, their size] of step k into the trace, from its array `first_noted` on.
  void Record(int64_t k, std::span<const Note> notes, size_t first_noted,
              std::span<const float> rows);
  // Replica r has made step k of the window: its episode goes on, or another begins.
  void FinishStep(int64_t k, int64_t r, StepExecutor* executor);

  const LoptProblem& problem_;
  const Window& window_;
  const LoptCounters& counters_;
  const std::span<const float> config_;
  const int64_t first_;
  const int64_t rows_;  // n
  // [n] each, in scratch.
  const std::span<ReplicaStep> steps_;
  const std::span<Key> batch_keys_;
  const std::span<EpisodeStep> batch_steps_;
  const std::span<float> losses_;                 // empty where an aux output is the meta-loss
  const std::span<float> aux_;                    // [n, A], empty if evaluations give none
  const std::span<const float> optimizer_state_;  // [n, S], empty if nothing of it is noted
};

}  // namespace lopt
