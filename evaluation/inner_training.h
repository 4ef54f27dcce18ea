#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// Parts of a split that are judged one by one, where it has as many examples: from the scatter of
// their losses statistics tell how much of a loss is the choice of the examples.
inline constexpr int64_t kSplitParts = 100;

// A task's loss on a split, and its accuracy: NaN for tasks without an aux output of that name.
struct SplitScore {
  float loss = 0;      // mean over the examples, raw
  float accuracy = 0;  // part of the examples in [0, 1]; NaN: none
  // Of the first part of the examples, of the next, ..., [min(kSplitParts, examples)], in sizes
  // that differ by one at most; empty in families without a data set.
  std::vector<float> part_losses = {};
};

// The score of params [P] on these examples, which `split` says how to evaluate, or where there are
// none on what the key draws of the split. `answers` may be wanted, of one row with these examples.
SplitScore JudgeExamples(const TaskFamily& task, std::span<const float> config,
                         std::span<const float> params, std::span<const float> model_state,
                         Split split, std::span<const int32_t> examples, Key key,
                         Workspace& scratch, const Answers& answers = {});

// The score of params [P] on all examples of a split or, in families without a data set, on the
// data of `key`. Those of train are judged as they are, without what a family does in training:
// augmentation, and statistics of the batch.
SplitScore JudgeOnSplit(const TaskFamily& task, std::span<const float> config,
                        std::span<const float> params, std::span<const float> model_state,
                        Split split, Key key, Workspace& scratch);

// What one inner training gave.
struct TrainingCurve {
  std::vector<float> train_loss;      // [steps], raw, of each step's batch before its update
  std::vector<float> train_accuracy;  // [steps]; empty for tasks without accuracy
  std::vector<SplitScore> judged;     // after each of the asked numbers of steps
  // Of the training, judging left out; of trainings that ran together, an equal share.
  double seconds = 0;
  std::vector<float> config;  // [C], of the task
  // At the end.
  std::vector<float> params;       // [P], UpdateRule::EvalParams
  std::vector<float> model_state;  // [M]
};

// Where a training's task, start and batches come from: drawn from the key, so that the same key
// gives every optimizer the same; or given, where there are params and examples. Steps on given
// examples draw nothing: an augmentation changes none of these, and a task that cannot do without
// draws throws Error.
struct TrainingSource {
  Key key = {};                            // of task, start and batches
  std::span<const float> params = {};      // [P]
  std::span<const int32_t> examples = {};  // [steps, batch], rows of the data set
};

// Trains a task of the family for each source, all from a fresh optimizer state and all together:
// one evaluation for all of them, then their updates, step by step. After each of `judge_at` steps
// (at least one, ascending; the last is the length of the training, which StepInfo::num_steps tells
// the rule) the params that the rule stands for (UpdateRule::EvalParams) are judged on
// `judge_split`. Losses that are not finite stay in the curve, and the training goes on. Where a
// family's rows do not touch each other's bits, as in native ones, each curve is what its source
// gives alone; in torch's it may differ in rounding. Empty if `stop`, which may be null, became
// true before the last step. Throws Error if what is given does not fit the task, or some sources
// have examples and others none.
std::vector<TrainingCurve> TrainTasks(const TaskFamily& task, const UpdateRule& rule,
                                      std::span<const int64_t> judge_at, Split judge_split,
                                      std::span<const TrainingSource> sources, Workspace& scratch,
                                      const std::atomic<bool>* stop = nullptr);

// The same for one source.
TrainingCurve TrainTask(const TaskFamily& task, const UpdateRule& rule,
                        std::span<const int64_t> judge_at, Split judge_split,
                        const TrainingSource& source, Workspace& scratch);

}  // namespace lopt
