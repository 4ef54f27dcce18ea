#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/base/workspace.h"
#include "lopt/estimators/inner_problem.h"
#include "lopt/estimators/truncation_schedule.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

class Device;
class DeviceProgram;

// Which loss is the meta-loss of an inner step: the training loss whose gradient is applied, that
// of the same batch after the update, or that of a fresh batch of a split after it.
enum class MetaLoss { kBeforeUpdate, kSameData, kTrain, kInnerValid, kOuterValid, kTest };
inline constexpr Named<MetaLoss> kMetaLosses[] = {{MetaLoss::kBeforeUpdate, "before_update"},
                                                  {MetaLoss::kSameData, "same_data"},
                                                  {MetaLoss::kTrain, "train"},
                                                  {MetaLoss::kInnerValid, "inner_valid"},
                                                  {MetaLoss::kOuterValid, "outer_valid"},
                                                  {MetaLoss::kTest, "test"}};
// The split, where it is one's.
std::optional<Split> SplitOf(MetaLoss meta_loss);

// What a raw loss that is not finite becomes; it is counted in any case. kCount: the normalizer's
// maximum where it has one, else the step is left out; kClip: the normalizer's maximum; kAbort: an
// Error.
enum class NonFinite { kCount, kClip, kAbort };
inline constexpr Named<NonFinite> kNonFinites[] = {
    {NonFinite::kCount, "count"}, {NonFinite::kClip, "clip"}, {NonFinite::kAbort, "abort"}};

// The keys of a config that say what is trained on.
struct LoptProblemOptions {
  MetaLoss meta_loss = MetaLoss::kBeforeUpdate;
  // Instead of the loss, this aux output of the task; empty: the loss.
  std::string meta_loss_aux = "";
  // e: the meta-loss is ln(max(l, e)) of the normalised loss l of a batch (OnScale: of several).
  std::optional<double> meta_loss_log = std::nullopt;
  NonFinite non_finite = NonFinite::kCount;
  // n > 0: the first episode of every replica is shorter by a number drawn from the multiples of
  // random_initial_iteration_multiple in [0, n), so that replicas do not run in step; it has at
  // least one step, so those whose number is not below their length do.
  int64_t random_initial_iteration_offset = 0;
  int64_t random_initial_iteration_multiple = 1;
  // Whether windows note the task's aux outputs and the optimizer's numbers (Note).
  bool with_metrics = false;

  void Visit(FieldVisitor& v);
};

// A number that windows note at each inner step.
struct Note {
  // "task/<aux output>", or "optimizer/<name>" of the state's "noted/<name>" or, of an optimizer
  // inside another, "optimizer/noted/<name>"; "optimizer/matrices.<name>" of a MatricesAndVectors'
  // "matrices/noted/<name>", and likewise of its vectors.
  std::string metric;
  int64_t offset = 0;  // in the row of aux outputs, or of the optimizer's state
};

// Tasks of a family trained by a learned optimizer: the inner problem of meta-training.
//
// State arrays, B replicas: `config` [B, C], `params` [B, P], `model_state` [B, M],
// `optimizer_state` [B, S], and int64 [B]: `inner_step` (of the running episode; also the
// optimizer's step), `length` (of the episode), `episode` (how many ended before it), `horizon` (1:
// started with a horizon, nothing restarts), `order` (seed of the orders in which Sampling::kEpoch
// goes through the episode's data, which the keys of a window cannot name: an episode spans
// windows).
//
// A step evaluates loss and gradient at the present params on the batch of its key, then updates.
// Its draws are functions of (keys[b], purpose, episode, inner step) and, by epochs, of `order`.
class LoptProblem : public InnerProblem {
 public:
  // Throws Error if an option is not valid, meta_loss_aux names no aux output, non_finite is kClip
  // and the normalizer has no maximum, or there is a random_initial_iteration_multiple and no
  // random_initial_iteration_offset. With with_metrics it throws Error, too, if there is nothing to
  // note, if a name is not one of a metric (1 to 100 letters, digits, '_', '-' and '.'), or if what
  // is noted is not a scalar. Windows run on `device`, if it is one: then also as DeviceProgram
  // does.
  LoptProblem(std::shared_ptr<const TaskFamily> task,
              std::shared_ptr<const LearnedOptimizer> optimizer,
              std::shared_ptr<const TruncationSchedule> schedule, const LoptProblemOptions& options,
              const Device* device = nullptr);
  ~LoptProblem() override;

  bool EpisodesEnd() const override { return schedule_->EpisodesEnd(); }
  const Device* device() const override { return device_; }
  // Throws Error if the optimizer needs the length of a run (needs_num_steps) and episodes have
  // none, as starting replicas without a horizon does.
  void CheckEpisodesHaveLengths() const;

  // What a window is made of, for the code that runs it on one kind of device.
  const TaskFamily& task() const { return *task_; }
  // The optimizer whose theta replicas run under.
  const LearnedOptimizer& optimizer() const { return *optimizer_; }
  // S numbers for each replica.
  const Layout& optimizer_state_layout() const { return rule_of_no_theta_->state_layout(); }
  // Whether the meta-loss is the training loss itself, before the update; else it is that of
  // meta_loss_split() or, without one, of the training batch, after the update.
  bool MetaLossIsBeforeUpdate() const { return options_.meta_loss == MetaLoss::kBeforeUpdate; }
  // The split of fresh batches that the meta-loss is of; none where it is of the training batch.
  const std::optional<Split>& meta_loss_split() const { return meta_loss_split_; }
  // The aux output that is the meta-loss in place of the loss: its index.
  const std::optional<int64_t>& meta_loss_aux() const { return meta_loss_aux_; }

  // What windows note: of the aux outputs of the evaluation that gives an inner step's meta-loss,
  // and of the optimizer's state after the update. Both empty without with_metrics.
  const std::vector<Note>& task_notes() const { return task_notes_; }
  const std::vector<Note>& optimizer_notes() const { return optimizer_notes_; }  // of its state
  // How many aux outputs the evaluations of a window are to give: all or none.
  int64_t AuxSize() const;

  // One replica's row of each float array of the state.
  struct ReplicaRow {
    std::span<float> config;           // [C]
    std::span<float> params;           // [P]
    std::span<float> model_state;      // [M]
    std::span<float> optimizer_state;  // [S]
  };
  // What a new episode begins with, beside a replica's arrays.
  struct Episode {
    int64_t length = 0;  // in inner steps; TruncationSchedule::kNever if it has no end
    int64_t order = 0;   // seed of the orders in which it goes through its data
  };
  // The params [P] of a replica that a meta-loss after the update is of: those that its training
  // stands for (UpdateRule::EvalParams).
  std::span<const float> JudgedParams(const ReplicaRow& row) const {
    return rule_of_no_theta_->EvalParams(row.params, row.optimizer_state);
  }
  // Draws a new task, its params and its model state into a replica.
  Episode DrawEpisode(Key key, const OuterState& outer, const ReplicaRow& row) const;
  // The meta-loss of a raw loss (or aux output) before OnScale; `non_finite` tells whether the raw
  // loss was not finite. Throws Error under policy abort.
  double UnscaledLoss(std::span<const float> config, float raw, bool* non_finite) const;
  // The same, on the scale.
  double JudgeLoss(std::span<const float> config, float raw, bool* non_finite) const {
    return OnScale(UnscaledLoss(config, raw, non_finite));
  }
  // ln(max(loss, meta_loss_log)), or the loss itself without meta_loss_log.
  double OnScale(double loss) const override;
  // d meta-loss / d normalised loss: 0 where the loss is cut off or not finite.
  double MetaLossSlope(double meta_loss) const;

  // How many replicas are evaluated together, of `replicas`.
  int64_t GroupRows(int64_t replicas) const;
  // Scratch memory of its runs.
  WorkspacePool& workspaces() const { return workspaces_; }

 private:
  UnrollState DoStart(const ThetaRows& theta, const OuterState& outer, std::span<const Key> keys,
                      std::optional<int64_t> horizon) const override;
  void DoRun(const Window& window) const override;
  // On batches of the split that `meta_loss` names, of `train` if it names none.
  void DoMetaLoss(const ThetaRows& theta, std::span<const Key> keys, const UnrollState& state,
                  std::span<double> loss) const override;

  // What the task and the optimizer have to note.
  void FindNotes();

  std::shared_ptr<const TaskFamily> task_;
  std::shared_ptr<const LearnedOptimizer> optimizer_;
  std::shared_ptr<const TruncationSchedule> schedule_;
  LoptProblemOptions options_;
  std::optional<Split> meta_loss_split_;
  std::optional<int64_t> meta_loss_aux_;
  std::unique_ptr<const UpdateRule> rule_of_no_theta_;  // of zeros, for what theta does not change
  std::vector<Note> task_notes_;
  std::vector<Note> optimizer_notes_;
  mutable WorkspacePool workspaces_;
  const Device* device_;  // null, as is the next: on the host
  std::unique_ptr<const DeviceProgram> program_;
};

}  // namespace lopt
