#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lopt/lopt/theta_file.h"
#include "lopt/tools/fit/fit_record.h"
#include "lopt/tools/fit/fit_verdict.h"

namespace lopt {

// How far a fit is.
struct FitProgress {
  std::string phase = {};                   // "measuring", "meta-training", "judging fitted"
  double done = 0;                          // share of the whole, in [0, 1], by time
  std::optional<double> seconds_left = {};  // none: not known yet
};

// What becomes of a fit that is in the output directory.
enum class ExistingFit { kRefuse, kReplace, kResume };

// Where and how a fit runs; where updates and trials are given, nothing here changes its result.
struct FitOptions {
  std::string out_dir = {};  // directory, made if it is missing; must be given
  int threads = 1;           // of the pool
  ExistingFit existing = ExistingFit::kRefuse;
  std::string version = {};                                  // of the program, for files
  const std::atomic<bool>* stop = nullptr;                   // once true: end after running steps
  std::function<void(const FitProgress&)> on_progress = {};  // by one thread at a time
};

// What a fit has found.
struct FitResult {
  bool interrupted = false;            // by `stop`; it can be resumed, unless `kept_other`
  bool kept_other = false;             // it was stopped before it replaced the fit in its directory
  FitRecord record = {};               // as fit.json has it
  ThetaFile theta = {};                // the best so far by the loss on inner_valid
  std::vector<FitJudged> judged = {};  // empty before the comparison has ended
  std::string report = {};             // table and verdict; empty likewise
};

// Fits a learned optimizer to a task, and compares it with others at equal compute.
//
// 1. Measures how fast the task is trained by each optimizer, and divides the minutes: a quarter of
//    what the trainings of the comparison leave is for fitting, and each of three rivals is tuned
//    for as long as fitting took. Of what measuring, 2. and 4. leave of it, meta-training gets
//    half, or all but 1,120 trainings of 3. if that is more; where that is less than 10 updates,
//    the search gets all.
// 2. Tries seven multipliers of steps, 1 first (evaluation/trials.h), on trainings a quarter as
//    long, for each kind of candidates (FitKindsOf): the start; its step sizes with Adam's
//    directions; and, if its steps are orthogonal, with Adam's for vectors alone, and two kinds
//    whose steps the schedule alone sizes, as Muon's and AdamW's.
// 3. Searches in whole trainings, one a trial, or up to 8 where there is time for some 120 such
//    trials. First it tries the start as it is, and each kind with its best multiplier of 2. Then
//    come rounds of 7 trials over a multiplier of the steps, within a factor of 4 of the one
//    before, one of the weight decay, and the momentum of the directions: a round for each of the
//    two kinds that were best, which begins with the trial before, then rounds for the kind of the
//    best trial.
// 4. Trains the start and the best of 3., an eighth of the trials, 2 to 6, with three times as many
//    other seeds. From the one of the lowest loss on inner_valid it meta-trains: FullES over whole
//    trainings of steps / 8 to steps, judged by the last loss on outer_valid, its logarithm where
//    all losses are positive. Trains what that made in the same way; the one of the lowest loss is
//    the result.
// 5. Trains it, the start, AdamW-cosine-decay, Muon-cosine and a random search over Adam's rate,
//    decay and betas with request.seeds seeds, and judges them on the split test. Rivals are tuned
//    on inner_valid with one seed a trial; with more where 500 trials take less time.
//
// Before 5. nothing reads the split test. A task without a data set draws its data from keys that
// differ between 2., 3., 4., meta-training and 5.
//
// Writes to out_dir: fit.json (FitRecord), start.safetensors and base.safetensors (what it and its
// meta-training begin with), meta/ (a meta-training run), compare/NAME/ (an evaluation each),
// report.txt and theta.safetensors, which is the start until 3. has tried the kinds, and then the
// best so far. A fit that ends early goes on, with kResume, with the phase in which it ended: a
// meta-training with its newest checkpoint, the search with its round, a rival, the trials of 2.
// and 4. and those that compare the kinds in 3. from their beginning. `request` and `start` are
// then not read.
//
// With request.updates and trials the result is a function of the request and the start, bit for
// bit on one instruction set; the clock then changes nothing but the noted times.
//
// Throws Error if the request has less than 20 steps or 3 seeds or no way to tell how long to work;
// if the time is too short, with the minutes that are needed; if `start` is no LearnedScheduler,
// whose steps can be multiplied within theta, or its weights are not finite; if out_dir holds a fit
// that got beyond measuring and is to be refused, or none that could be resumed, or a run of
// another command, or another's file in the place of one of a fit's, or another process is in it;
// if a fit whose time is divided by the clock goes on with another number of threads, or any with
// other data; if data_dir is given and the task reads nothing from it; as TaskRegistry().Make,
// RunMetaTraining and RunEvaluation do. A fit that is to be replaced stays until measuring has
// ended.
FitResult RunFit(const FitRequest& request, const ThetaFile& start, const FitOptions& options);

// The request of the fit in a directory. Throws Error if there is none.
FitRequest ReadFitRequest(const std::string& out_dir);

}  // namespace lopt
