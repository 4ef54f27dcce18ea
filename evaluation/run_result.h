#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace lopt {

// One task trained by one optimizer with one seed: a line of results.jsonl. The vectors after
// `steps` have one number for each asked number of steps; a number that is not finite says that the
// training diverged, and an accuracy is NaN for tasks that have none. Where an optimizer is tuned,
// the numbers at each of `steps` are those of a run that was tuned for, and ended at, that step.
struct RunResult {
  std::string task = {};                      // its name in the evaluation
  std::string optimizer = {};                 // name of the optimizer
  int64_t seed = 0;                           // 0, 1, ...
  std::vector<int64_t> steps = {};            // asked for, ascending
  std::vector<float> train_loss = {};         // [steps.back()], raw batch losses before each update
  std::vector<double> final_train_loss = {};  // mean of the last kFinalSteps batch losses
  std::vector<double> final_train_accuracy = {};  // mean of the same batches
  std::vector<double> mean_train_loss = {};  // of all steps: the area under the curve by its length
  std::vector<double> test_loss = {};        // on the whole test split
  // Of the parts of the test split (SplitScore::part_losses), [steps, parts]; empty in tasks
  // without a data set.
  std::vector<float> test_part_loss = {};
  std::vector<double> test_accuracy = {};  // on the whole test split
  // Steps until the mean of the last kFinalSteps batch losses is at tuned Adam's final train loss
  // and stays there to the end, both as interquartile means over the seeds, so one number for all
  // seeds; 0 where it does not. Empty if Adam was not among the optimizers.
  std::vector<int64_t> steps_to_adam = {};
  std::vector<double> seconds = {};        // wall-clock of the inner training
  std::vector<double> learning_rate = {};  // of baselines, tuned or not; empty of others
  // Whether the first hyperparameter, the learning rate or step multiplier, is the lowest or
  // highest that was tried; empty where nothing is tuned.
  std::vector<bool> at_edge = {};
  // What else was tuned, by its name, the option's or kStepMultiplier (evaluation/trials.h): a
  // number for each of `steps`.
  std::map<std::string, std::vector<double>> hyperparameters = {};
  // Mean over the tuning seeds of the loss on inner_valid with what was chosen; empty where nothing
  // is tuned.
  std::vector<double> tuning_loss = {};
  int64_t trials = 0;              // values of what is tuned that were tried; 0 where nothing is
  std::vector<bool> blew_up = {};  // BlewUp of the losses up to each of `steps`

  // Whether a loss at or before steps[i] was not finite.
  bool Diverged(size_t i) const;
};

// Shows every member of a RunResult to visit(name, member), by its name in results.jsonl and in
// their order there.
template <class Result, class Visit>
void VisitMembers(Result& result, const Visit& visit) {
  visit("task", result.task);
  visit("optimizer", result.optimizer);
  visit("seed", result.seed);
  visit("steps", result.steps);
  visit("train_loss", result.train_loss);
  visit("final_train_loss", result.final_train_loss);
  visit("final_train_accuracy", result.final_train_accuracy);
  visit("mean_train_loss", result.mean_train_loss);
  visit("test_loss", result.test_loss);
  visit("test_part_loss", result.test_part_loss);
  visit("test_accuracy", result.test_accuracy);
  visit("steps_to_adam", result.steps_to_adam);
  visit("seconds", result.seconds);
  visit("learning_rate", result.learning_rate);
  visit("at_edge", result.at_edge);
  visit("hyperparameters", result.hyperparameters);
  visit("tuning_loss", result.tuning_loss);
  visit("trials", result.trials);
  visit("blew_up", result.blew_up);
}

// The mean in float64, in the order given; NaN of none.
double Mean(std::span<const float> values);

// Batch losses that a "final" train loss is the mean of.
inline constexpr int64_t kFinalSteps = 10;
// Mean of the last kFinalSteps of the first `steps` numbers of a curve; of all where there are
// fewer.
double FinalMean(std::span<const float> curve, int64_t steps);

// Curves are smoothed over this part of their steps.
inline constexpr int64_t kSmoothedPart = 50;

// Whether a training lost again what it had gained. Its batch losses are cut into blocks of
// max(kFinalSteps, steps / kSmoothedPart), from the end on. It blew up if the means of the last two
// are both above 5 times the least mean of a block, or 5/1000 of the first one where that is more:
// below that a loss comes and goes with the batches. A single loss, however large, is in one block
// only. False for trainings of less than three blocks, and where a loss is not finite (the training
// diverged) or the first mean not above 0 (multiples of it say nothing).
bool BlewUp(std::span<const float> losses);

}  // namespace lopt
