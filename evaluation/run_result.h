#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lopt {

// One task trained by one optimizer with one seed: a line of results.jsonl. The vectors after
// `steps` have one number for each asked number of steps; a number that is not finite says that the
// training diverged, and an accuracy is NaN for tasks that have none. Where an optimizer is tuned,
// the numbers at each of `steps` are those of a run that was tuned for, and ended at, that step.
struct RunResult {
  std::string task = {};
  std::string optimizer = {};
  int64_t seed = 0;
  std::vector<int64_t> steps = {};            // asked for, ascending
  std::vector<float> train_loss = {};         // [steps.back()], raw batch losses before each update
  std::vector<double> final_train_loss = {};  // mean of the last kFinalSteps batch losses
  std::vector<double> final_train_accuracy = {};
  std::vector<double> mean_train_loss = {};  // of all steps: the area under the curve by its length
  std::vector<double> test_loss = {};        // on the whole test split
  std::vector<double> test_accuracy = {};
  // Steps until the mean of the last kFinalSteps batch losses is at tuned Adam's final train loss,
  // both as interquartile means over the seeds, so one number for all seeds; 0 where it never is.
  // Empty if Adam was not among the optimizers.
  std::vector<int64_t> steps_to_adam = {};
  std::vector<double> seconds = {};              // wall-clock of the inner training
  std::vector<double> learning_rate = {};        // the tuned one; empty for optimizers without
  std::vector<bool> learning_rate_at_edge = {};  // of the learning rates that were tried
  int64_t trials = 0;                            // learning rates that were tried

  // Whether a loss at or before steps[i] was not finite.
  bool Diverged(size_t i) const;
};

// Batch losses that a "final" train loss is the mean of.
inline constexpr int64_t kFinalSteps = 10;
// Mean of the last kFinalSteps of the first `steps` numbers of a curve; of all where there are
// fewer.
double FinalMean(std::span<const float> curve, int64_t steps);

}  // namespace lopt
