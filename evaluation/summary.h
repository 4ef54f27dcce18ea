#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/evaluation/evaluated_optimizers.h"
#include "lopt/evaluation/run_result.h"
#include "lopt/evaluation/statistics.h"

namespace lopt {

// Of fewer seeds there is no interval.
inline constexpr int64_t kIntervalSeeds = 3;
// Of fewer seeds the interval of a difference leaves out 0 too often by chance: no verdict is made.
inline constexpr int64_t kVerdictSeeds = 8;

// An interquartile mean over seeds with its 95 % bootstrap interval (of 2,000 resamples or more, a
// function of the numbers alone). Of test losses the bootstrap draws the parts of the test split as
// well as the seeds, where the results have them. Of fewer than kIntervalSeeds seeds, also of one
// task of several, both ends of the interval are NaN.
struct Estimate {
  double value = 0;        // interquartile mean
  Interval interval = {};  // 95 %, of the same unit
};

// Whether there were seeds enough for the interval.
inline bool HasInterval(const Estimate& estimate) { return !std::isnan(estimate.interval.low); }

// How an optimizer compares with another, tuned Adam or the best baseline, in one figure: by the
// 95 % interval of the difference of their interquartile means, in resamples of the same seeds (the
// same start and batches) and the same parts of the test split.
enum class Verdict {
  kBetter,   // the interval lies below 0
  kWorse,    // it lies above 0
  kUnclear,  // it holds 0
  kNone  // it is the other one, there is none, they have other seeds or fewer than kVerdictSeeds
};

// The words of tables, reports and files.
inline constexpr Named<Verdict> kVerdicts[] = {{Verdict::kBetter, "better"},
                                               {Verdict::kWorse, "worse"},
                                               {Verdict::kUnclear, "unclear"},
                                               {Verdict::kNone, ""}};

// The word of a verdict. Throws Error if it is none of the values.
inline std::string ToString(Verdict verdict) { return NameOf("verdict", verdict, kVerdicts); }

// One optimizer on one task after one number of steps, over all seeds. A diverged seed's losses
// count as +infinity, its accuracies as 0.
struct SummaryRow {
  std::string task = {};                        // its name in the evaluation
  std::string optimizer = {};                   // name of the optimizer
  int64_t steps = 0;                            // of inner training
  int64_t seeds = 0;                            // trainings
  int64_t diverged = 0;                         // of the seeds
  int64_t blown_up = 0;                         // of the seeds
  Estimate train_loss = {};                     // of the last kFinalSteps batches
  Estimate test_loss = {};                      // on the whole test split
  Estimate mean_train_loss = {};                // of all steps
  std::optional<Estimate> train_accuracy = {};  // none for tasks without accuracy
  std::optional<Estimate> test_accuracy = {};   // none for tasks without accuracy
  std::optional<double> learning_rate = {};     // of baselines only, tuned or not
  std::optional<double> step_multiplier = {};   // the tuned one of a learned optimizer
  bool tuned = false;                           // whether something was tuned for the task
  bool at_edge = false;  // the learning rate or multiplier, of those that were tried
  double seconds = 0;    // mean of the seeds' inner trainings
  // What RunResult has; infinite if it is never reached. Empty without Adam.
  std::optional<double> steps_to_adam = {};
  std::optional<double> seconds_to_adam = {};  // the same in seconds of inner training
  std::optional<double> speedup = {};          // steps / steps_to_adam
  // Interquartile mean of the seconds of Adam's trainings / seconds_to_adam.
  std::optional<double> seconds_speedup = {};
  Verdict train_verdict = Verdict::kNone;  // of train_loss against tuned Adam's
  Verdict test_verdict = Verdict::kNone;   // of test_loss against tuned Adam's
  // Whether it is the best baseline of its task and steps: the one of the lowest tuning loss, so
  // chosen without the test split. None where fewer than two are tuned.
  bool best_baseline = false;
  Verdict best_verdict = Verdict::kNone;    // of test_loss against the best baseline's
  std::optional<double> best_p_value = {};  // of the same difference being 0; BootstrapPValue
  // test_loss as a fraction of the best baseline's, or of tuned Adam's where there is no best
  // baseline: 1 of that one itself and of an equal one, else none unless both losses are above 0
  // and the other one is finite; none without both baselines. Its interval, of the same resamples
  // as the verdicts, is NaN where the two have other seeds or fewer than kIntervalSeeds, or a
  // resample has no such fraction.
  std::optional<Estimate> test_ratio = {};
  // Whether its meta-training has trained on the task (evaluation/trained_on.h). None of baselines
  // and where that is unknown; after other meta-trainings (OptimizerInfo::trained_before) it is
  // never known that none has.
  std::optional<bool> trained_on = {};
};

// A geometric mean over some tasks and numbers of steps.
struct GeometricMean {
  int64_t count = 0;       // of these
  Estimate estimate = {};  // the mean
};

// One optimizer over all tasks: the interquartile mean, over tasks, steps and seeds, of losses as
// fractions of tuned Adam's interquartile mean on the same task and steps. The bootstrap resamples
// each task's seeds, the optimizer's and Adam's, since both are estimates; the numbers of one seed
// after several numbers of steps stay together.
struct AggregateRow {
  std::string optimizer = {};  // name of the optimizer
  int64_t compared = 0;        // tasks and steps that are in the ratios; ratios of none are NaN
  // Tasks and steps that are not, because Adam's interquartile mean is not finite or not above 0,
  // so that fractions of it say nothing.
  int64_t left_out = 0;
  int64_t diverged = 0;       // trainings, of all seeds, tasks and steps
  int64_t blown_up = 0;       // trainings
  Estimate train_ratio = {};  // of train losses; below 1 is better than Adam
  Estimate test_ratio = {};   // of test losses
  int64_t better = 0;         // test verdicts over tasks and steps
  int64_t worse = 0;          // likewise
  int64_t unclear = 0;        // likewise
  // The geometric mean over tasks and steps of the test loss as a fraction of the best baseline's,
  // both interquartile means; of all that are above 0. None where there is no best baseline.
  std::optional<Estimate> best_ratio = {};
  int64_t best_compared = 0;  // tasks and steps that are in it
  // The same over those that its meta-training has trained on, and over the others. None also where
  // there are none of a kind, or what it trained on is unknown.
  std::optional<GeometricMean> best_ratio_trained = {};
  std::optional<GeometricMean> best_ratio_transfer = {};  // over the others
  // Interquartile mean over tasks and steps of SummaryRow::speedup, which is 0 where tuned Adam's
  // loss is never reached (Moudgil et al. 2025, "Celo").
  std::optional<double> speedup = {};
  // Tasks and steps on which it is better or worse than the best baseline after Holm's correction
  // for their number at 5 %, and all others that it was compared on.
  int64_t best_better = 0;
  int64_t best_worse = 0;    // likewise
  int64_t best_unclear = 0;  // likewise
};

// The tables of an evaluation.
struct Summary {
  std::vector<SummaryRow> rows = {};           // tasks and optimizers in the order of the results
  std::vector<AggregateRow> aggregate = {};    // empty without both Adam and a best baseline
  std::vector<OptimizerInfo> optimizers = {};  // what Summarize was given
};

// The name of the baseline that others are compared with.
inline constexpr const char* kReferenceBaseline = "Adam";

// Whether it was among the optimizers.
bool HasReference(const Summary& summary);
// Whether tasks have a best baseline, of which losses are fractions.
bool HasBestBaseline(const Summary& summary);

// `infos` may say more of some optimizers than the results do. Throws Error if an optimizer has
// several results for one task and seed, or if the asked steps differ within a task.
Summary Summarize(const std::vector<RunResult>& results,
                  const std::vector<OptimizerInfo>& infos = {});

}  // namespace lopt
