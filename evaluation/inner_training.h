#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/key.h"
#include "base/workspace.h"
#include "lopt/learned_optimizer.h"
#include "tasks/task_family.h"

namespace lopt {

// A task's loss and accuracy on a whole split. NaN for the accuracy of tasks without that aux
// output.
struct SplitScore {
  float loss = 0;
  float accuracy = 0;
};

// What one inner training gave.
struct TrainingCurve {
  std::vector<float> train_loss;      // [steps], raw, of each step's batch before its update
  std::vector<float> train_accuracy;  // [steps]; empty for tasks without accuracy
  std::vector<SplitScore> judged;     // after each of the asked numbers of steps
  double seconds = 0;                 // of the training, judging left out
  std::vector<float> params;          // [P], at the end
};

// Trains one task of the family from fresh params and a fresh state: draws the task, its params and
// the batch of every step from `key`, so the same key gives every optimizer the same task, start
// and data. After each of `judge_at` steps (ascending, at least one; the last is the number of
// steps of the run, which StepInfo::num_steps tells the rule) the params are judged on all of
// `judge_split`, or, in families without a data set, on the split's data of one key. Losses that
// are not finite stay in the curve, and the training goes on.
TrainingCurve TrainTask(const TaskFamily& task, const UpdateRule& rule,
                        std::span<const int64_t> judge_at, Split judge_split, Key key,
                        Workspace& scratch);

}  // namespace lopt
