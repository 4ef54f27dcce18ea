#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/fields.h"
#include "base/workspace.h"
#include "estimators/inner_problem.h"
#include "estimators/truncation_schedule.h"
#include "lopt/learned_optimizer.h"
#include "tasks/task_family.h"

namespace lopt {

struct LoptProblemOptions {
  // Which loss is the meta-loss of an inner step: "before_update" (the training loss whose gradient
  // is applied), "same_data" (the same batch after the update), or a split's name (a fresh batch of
  // it after the update).
  std::string meta_loss = "before_update";
  // Instead of the loss, this aux output of the task; empty: the loss.
  std::string meta_loss_aux = "";
  // What a raw loss that is not finite becomes. "count": the normalizer's maximum where it has one,
  // else the step is left out; "clip": the normalizer's maximum, an Error at the start if it has
  // none; "abort": an Error. Counted in any case.
  std::string non_finite = "count";
  // n > 0: the first episode of every replica is shorter by a number drawn from [0, n), so that
  // replicas do not run in step.
  int64_t random_initial_iteration_offset = 0;

  void Visit(FieldVisitor& v);
};

// Tasks of a family trained by a learned optimizer: the inner problem of meta-training.
//
// State arrays, B replicas: `config` [B, C], `params` [B, P], `model_state` [B, M],
// `optimizer_state` [B, S], and int64 [B]: `inner_step` (of the running episode; also the
// optimizer's step), `length` (of the episode), `episode` (how many ended before it), `horizon` (1:
// started with a horizon, nothing restarts).
//
// A step evaluates loss and gradient at the present params on the batch of its key, then updates.
// Its draws are functions of (keys[b], purpose, episode, inner step). The initial state of an
// optimizer must not depend on theta.
class LoptProblem : public InnerProblem {
 public:
  // Throws Error if meta_loss_aux names no aux output, or non_finite is "clip" and the normalizer
  // has no maximum.
  LoptProblem(std::shared_ptr<const TaskFamily> task,
              std::shared_ptr<const LearnedOptimizer> optimizer,
              std::shared_ptr<const TruncationSchedule> schedule,
              const LoptProblemOptions& options);

  bool EpisodesEnd() const override { return schedule_->EpisodesEnd(); }

 private:
  struct StateView;
  struct Group;

  StateView View(UnrollState* state, int64_t replicas) const;
  UnrollState DoStart(int64_t replicas, const OuterState& outer, Key key,
                      std::optional<int64_t> horizon) const override;
  void DoRun(const ThetaRows& theta, const OuterState& outer, int64_t steps,
             std::span<const Key> keys, UnrollState* state, UnrollTrace* trace) const override;
  // On batches of the split that `meta_loss` names, of `train` if it names none.
  void DoMetaLoss(const ThetaRows& theta, std::span<const Key> keys, const UnrollState& state,
                  std::span<double> loss) const override;

  // Runs `steps` inner steps of replicas [first, first + rows) in lockstep.
  void RunGroup(int64_t first, int64_t rows, const ThetaRows& theta, const OuterState& outer,
                int64_t steps, std::span<const Key> keys, const StateView& view,
                UnrollTrace* trace) const;
  // How many replicas are evaluated together, of `replicas`.
  int64_t GroupRows(int64_t replicas) const;

  // Draws a new task, its params and optimizer state into a replica; returns the episode's length.
  int64_t BeginEpisode(Key key, const OuterState& outer, std::span<float> config,
                       std::span<float> params, std::span<float> model_state,
                       std::span<float> optimizer_state) const;
  // The meta-loss of a raw loss; `non_finite` tells whether that was not finite. Throws under
  // policy abort.
  double JudgeLoss(std::span<const float> config, float raw, bool* non_finite) const;

  std::shared_ptr<const TaskFamily> task_;
  std::shared_ptr<const LearnedOptimizer> optimizer_;
  std::shared_ptr<const TruncationSchedule> schedule_;
  LoptProblemOptions options_;
  std::optional<Split> meta_loss_split_;
  std::optional<int64_t> meta_loss_aux_;   // its index
  std::unique_ptr<UpdateRule> prototype_;  // bound to some theta: for layouts and initial states
  mutable WorkspacePool workspaces_;
};

}  // namespace lopt
