#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lopt/tools/fit/fit_phase.h"
#include "lopt/tools/fit/fit_record.h"

namespace lopt {

// Trials of a rival.
inline constexpr int64_t kFewestTrials = 2;
inline constexpr int64_t kMostTrials = 10000;

// Multipliers of steps are tried in trainings of this part of the steps: one round of
// kTrialsPerRound for each kind of candidates. Then a whole training tries each kind with its best
// multiplier, and one the start as it is. The search has so many of these kinds at most.
inline constexpr int64_t kMultiplierPart = 4;
inline constexpr int64_t kMostSearchedKinds = 2;
// Whole trainings that decide, for each seed of the search.
inline constexpr int64_t kCandidateSeeds = 3;

// How many of the search's trials are trained again.
int64_t Finalists(int64_t trials);

// The name in FitMeasurement::training of the start's training, and of that with Adam's directions.
// Those of the other kinds take as long as the start's.
std::string FitTrainingName(const std::string& start, const std::string& kind);

// How the time of a fit is divided, from what was measured and what has been done since:
// `record.measured` has a value, also of the seconds of each kind of training.
class FitPlan {
 public:
  FitPlan(const FitRecord& record, int threads) : record_(record), threads_(threads) {}

  // Throws Error if the minutes are too short for anything.
  void RequireTime() const;

  // Whether there may be time to meta-train, so that an update is worth measuring.
  bool MayMetaTrain() const;

  // Updates of theta that there is time for, beside a search of half the time or of as many
  // trainings as help: 0 where these are too few.
  int64_t UpdatesBesideSearch() const;
  // The same where the search has ended: at least the fewest.
  int64_t UpdatesLeft() const;

  // Seeds of each trial of the search: more than one where there is time for many trials.
  int64_t SearchSeeds() const;

  // Trials of the search's next round, at most kTrialsPerRound; 0: it has ended.
  int64_t NextRound() const;

  // The part of the search that is done after `more` trials, in [0, 1].
  double SearchShare(int64_t more) const;

  // How a rival is tuned: where 500 trials are quicker than fitting, with several seeds each.
  struct Tuning {
    int64_t trials = 0;
    int64_t seeds = 1;
  };
  Tuning TuningOf(const std::string& rival) const;

  // The stages after measuring with their expected seconds, in their order.
  std::vector<std::pair<FitStage, double>> Stages() const;

 private:
  const FitRequest& request() const { return record_.request; }
  double TrainingSeconds(const std::string& name) const;
  double TrialSeconds(const std::string& name, int64_t seeds = 1) const;
  double TogetherSeconds(const std::string& name, int64_t trainings) const;
  double ExpectedStepSizes() const;
  double ExpectedKinds() const;
  double ExpectedOfSearched() const;
  double StepSizesSeconds() const;
  double KindsSeconds() const;
  double CandidateSeconds() const;
  double FinalSeconds(int64_t searched) const;
  double UpdateSeconds() const;
  double MetaSeconds() const;
  double Slowdown() const;
  double JudgingSeconds() const;
  double Shares() const;
  double FittingBudget() const;
  double SearchBudget() const;
  double SearchTrialSeconds() const;
  int64_t Kinds() const;
  int64_t SearchedKinds() const;
  int64_t KindTrials() const;
  int64_t BegunKinds(int64_t trials) const;
  int64_t Searched() const;
  double ExpectedSearch() const;

  const FitRecord& record_;
  const int threads_;
};

}  // namespace lopt
