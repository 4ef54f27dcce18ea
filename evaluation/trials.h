#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/key.h"

namespace lopt {

// The name of what every baseline has tuned first.
inline constexpr const char* kLearningRate = "learning_rate";
// The name of what the steps of a learned optimizer are multiplied by.
inline constexpr const char* kStepMultiplier = "step_multiplier";

// A hyperparameter that is tuned, a positive number.
struct TunedHyperparameter {
  std::string name;        // of the optimizer's option, or kStepMultiplier
  double lowest = 0;       // of the range that is tried first
  double highest = 0;      // likewise
  bool one_minus = false;  // the option is 1 minus the value: decays
};

// Values that were tried.
struct TunedTrial {
  std::vector<double> values = {};  // of the options, [tuned]
  double loss = 0;                  // one that is not finite counts as infinite
};

// The version of the tuner: of NextTrials, and of the ranges of the steps of learned optimizers. To
// be raised with every change of the values that it tries or chooses; one evaluation has one tuner.
// Programs before 0.2.0 have version 1 and do not say so.
inline constexpr int64_t kTunerVersion = 2;

// Trials of one round, which do not depend on each other's losses.
inline constexpr int64_t kTrialsPerRound = 7;

// The values of the next round, [kTrialsPerRound, tuned], after all trials so far: whole rounds, in
// their order. A function of its arguments that sees of the losses only their order, so the first N
// of M > N trials are those of a tuning with N, and the best loss never rises with their number.
//
// A place is a point whose coordinates are the logarithms of the values: 0 is the lowest of a
// range, 1 its highest. Trial i = 0, 1, ... of n hyperparameters has the points i, i + 1, ... of a
// sequence that fills the unit cube evenly: coordinate j = 1, ..., n of point i is the fraction of
// 1/2 + i / phi^j, where phi > 1 solves phi^(n + 1) = phi + 1 (Roberts 2018, "The unreasonable
// effectiveness of quasirandom sequences").
//
// - The first round takes the points 0 to 6, so that the first trial is the middle of the ranges.
// - A winner is a trial that is better than the 2 n nearest to it (largest difference of a
//   coordinate); its box reaches half as far as these on every side, and at least 1/64. So it
//   shrinks as trials gather in it, and at the end of a range it reaches out. Of equal losses the
//   earlier is the better.
// - A later round takes its places, in turn, from the box of the best winner; from anywhere in the
//   ranges; from the boxes of the second winner, of the best (twice as wide, so that it can move
//   on), of the third, of the best, of the second. Where there are fewer winners, the best stands
//   in; without any, the ranges do.
// - Each is that of 16 points of the sequence, moved into the box, that is farthest from all trials
//   (Mitchell 1991, "Spectrally optimal sampling for distribution ray tracing": best candidate).
// - Where the best trial lies within 0.15 of an end of a range, or beyond it, the range reaches 0.5
//   beyond that trial. No place is more than the range's width outside it, and no 1 minus value
//   below 0.
//
// Throws Error unless whole rounds of trials are given with as many values as are tuned.
std::vector<std::vector<double>> NextTrials(const std::vector<TunedHyperparameter>& tuned,
                                            std::span<const TunedTrial> trials);

// The same for a random search: each value is drawn log-uniformly from its range. A function of
// `key` and of how many whole rounds were `tried`.
std::vector<std::vector<double>> RandomTrials(const std::vector<TunedHyperparameter>& tuned,
                                              size_t tried, Key key);

// The place of the trial of the lowest loss, the first of equals. At least one trial.
size_t BestTrial(std::span<const TunedTrial> trials);

}  // namespace lopt
