#include "lopt/tools/fit/fit_plan.h"

#include <algorithm>
#include <cmath>

#include "lopt/base/error.h"
#include "lopt/base/option_words.h"
#include "lopt/evaluation/trials.h"
#include "lopt/tools/fit/fit_comparison.h"
#include "lopt/tools/fit/fit_meta.h"
#include "lopt/tools/fit/fit_verdict.h"

namespace lopt {
namespace {

constexpr double kSecondsPerMinute = 60;
constexpr int64_t kFewestUpdates = 10;
constexpr int64_t kMostUpdates = 10000;
// Of a rival, where there is time for more.
constexpr int64_t kMostTunedTrials = 500;
constexpr int64_t kMostTuningSeeds = 1000;
// After so many trials more seeds help more; and so many of these are enough.
constexpr int64_t kEnoughTrials = 140;
constexpr int64_t kEnoughSeeds = 8;
// How much cheaper than alone a training in an update may be.
constexpr double kLargestGain = 8;

int64_t DividedRoundingUp(int64_t number, int64_t by) { return (number + by - 1) / by; }

}  // namespace

int64_t Finalists(int64_t trials) {
  constexpr int64_t kTrialsPerFinalist = 8;
  constexpr int64_t kFewest = 2;
  constexpr int64_t kMost = 6;
  return std::min(trials, std::clamp(trials / kTrialsPerFinalist, kFewest, kMost));
}

std::string FitTrainingName(const std::string& start, const std::string& kind) {
  return kind == kAdamKind || kind == kPlainAdamKind ? start + ", Adam's directions" : start;
}

// --- What was measured ---------------------------------------------------------------------------

double FitPlan::TrainingSeconds(const std::string& name) const {
  return record_.measured->training.at(name);
}

// Of a trial with so many seeds in a round, in which threads are idle where its trainings do not
// keep them busy.
double FitPlan::TrialSeconds(const std::string& name, int64_t seeds) const {
  return TogetherSeconds(name, kTrialsPerRound * seeds) / kTrialsPerRound;
}

// Of so many trainings at once, of which the last may leave threads idle.
double FitPlan::TogetherSeconds(const std::string& name, int64_t trainings) const {
  const int64_t turns = DividedRoundingUp(trainings, threads_);
  return TrainingSeconds(name) * static_cast<double>(turns * threads_);
}

int64_t FitPlan::Kinds() const { return std::ssize(record_.measured->kinds); }
int64_t FitPlan::SearchedKinds() const { return std::min(Kinds(), kMostSearchedKinds); }

int64_t FitPlan::KindTrials() const {
  return record_.kinds ? std::ssize(record_.kinds->trials) : Kinds() + 1;
}

// Of so many trials of the search the kinds that they begin, a round for each. The first trial of
// each was made before the search.
int64_t FitPlan::BegunKinds(int64_t trials) const {
  return std::min(SearchedKinds(), DividedRoundingUp(trials, kTrialsPerRound));
}

double FitPlan::UpdateSeconds() const {
  return record_.measured->update_seconds > 0
             ? record_.measured->update_seconds
             : TrainingSeconds(request().start) * TrainingsOfUpdate(request().steps);
}

// What was measured says of the short trainings, of those that compare the kinds and of the
// search's.

double FitPlan::ExpectedStepSizes() const {
  double seconds = 0;
  for (const std::string& kind : record_.measured->kinds) {
    seconds += TogetherSeconds(FitTrainingName(request().start, kind), kTrialsPerRound);
  }
  return seconds / kMultiplierPart;
}

double FitPlan::ExpectedKinds() const {
  const int64_t seeds = record_.measured->search_seeds;
  const int64_t trials = KindTrials();
  double seconds = TogetherSeconds(request().start, trials * seeds);
  // Those of the other kinds may be slower or quicker than the start's.
  for (const std::string& kind : record_.measured->kinds) {
    const double slower =
        TrainingSeconds(FitTrainingName(request().start, kind)) - TrainingSeconds(request().start);
    seconds += slower * static_cast<double>(seeds);
  }
  return seconds;
}

double FitPlan::ExpectedOfSearched() const {
  const std::vector<FitTrial>& trials = record_.search->trials;
  double seconds = 0;
  for (int64_t first = 0; first < Searched(); first += kTrialsPerRound) {
    const int64_t count = std::min(kTrialsPerRound, Searched() - first);
    const int64_t before = first / kTrialsPerRound < SearchedKinds() ? 1 : 0;
    const std::string& kind = trials[static_cast<size_t>(first)].kind;
    seconds += TogetherSeconds(FitTrainingName(request().start, kind),
                               (count - before) * record_.measured->search_seeds);
  }
  return seconds;
}

// How much longer trials took so far, those of rivals too, than what was measured says.
double FitPlan::Slowdown() const {
  double expected = 0;
  double taken = 0;
  // Short trainings, whose judging takes as long as that of whole ones, say something only as long
  // as there are no others.
  if (record_.steps && !record_.kinds && !record_.search) {
    expected += ExpectedStepSizes();
    taken += record_.steps->seconds;
  }
  if (record_.kinds) {
    expected += ExpectedKinds();
    taken += record_.kinds->seconds;
  }
  if (record_.search) {
    expected += ExpectedOfSearched();
    taken += record_.search->seconds;
  }
  for (const FitContender& rival : record_.contenders) {
    if (rival.trials == 0) continue;
    expected += TrialSeconds(rival.name, rival.tuning_seeds) * static_cast<double>(rival.trials) +
                TrainingSeconds(rival.name) * static_cast<double>(request().seeds);
    taken += rival.seconds;
  }
  return expected > 0 ? taken / expected : 1;
}

// --- What phases take ----------------------------------------------------------------------------

double FitPlan::StepSizesSeconds() const {
  return record_.steps ? record_.steps->seconds : ExpectedStepSizes();
}

double FitPlan::KindsSeconds() const {
  return record_.kinds ? record_.kinds->seconds : ExpectedKinds();
}

// Of one candidate's trainings that decide.
double FitPlan::CandidateSeconds() const {
  return TrainingSeconds(request().start) * Slowdown() *
         static_cast<double>(kCandidateSeeds * record_.measured->search_seeds);
}

double FitPlan::FinalSeconds(int64_t searched) const {
  return CandidateSeconds() * static_cast<double>(1 + Finalists(searched));
}

double FitPlan::MetaSeconds() const {
  const auto updates = static_cast<double>(record_.measured->updates);
  return updates > 0 ? updates * UpdateSeconds() + CandidateSeconds() : 0;
}

double FitPlan::JudgingSeconds() const {
  const auto seeds = static_cast<double>(request().seeds);
  double seconds = 2 * seeds * TrainingSeconds(request().start);
  for (const Baseline& rival : FitRivals()) seconds += seeds * TrainingSeconds(rival.name);
  return seconds * Slowdown();
}

// Of all that is not judging: fitting is one, and each rival is tuned as long.
double FitPlan::Shares() const { return 1 + static_cast<double>(FitRivals().size()); }

// That the minutes give to fitting, measuring included.
double FitPlan::FittingBudget() const {
  return (*request().minutes * kSecondsPerMinute - JudgingSeconds()) / Shares();
}

// That the minutes give to the search, done and to come.
double FitPlan::SearchBudget() const {
  return FittingBudget() - record_.measured->seconds - StepSizesSeconds() - KindsSeconds() -
         FinalSeconds(Searched() + kTrialsPerRound) - MetaSeconds();
}

int64_t FitPlan::Searched() const {
  return record_.search ? std::ssize(record_.search->trials) : 0;
}

// --- Decisions -----------------------------------------------------------------------------------

void FitPlan::RequireTime() const {
  const int64_t fewest = SearchedKinds() * kTrialsPerRound;
  // A round for each of these kinds, whose first trial was made before.
  const double rounds =
      TogetherSeconds(request().start, kTrialsPerRound - 1) * static_cast<double>(SearchedKinds());
  const double trainings = StepSizesSeconds() + KindsSeconds() + FinalSeconds(fewest) + rounds;
  const double measured = record_.measured->seconds;
  const double least = measured + trainings;
  if (FittingBudget() >= least) return;
  const double minutes = std::ceil((least * Shares() + JudgingSeconds()) / kSecondsPerMinute);
  Require(measured < trainings,
          "fit: to measure how fast the task is trained took {:.3g} s, so that {} minutes are too "
          "few: give at least {}",
          measured, *request().minutes, minutes);
  Fail(
      "fit: a training of {} steps takes {:.3g} s here, so that {} minutes are too few: give at "
      "least {}, or fewer steps ({})",
      request().steps, TrainingSeconds(request().start), *request().minutes, minutes,
      OptionWords("steps"));
}

bool FitPlan::MayMetaTrain() const {
  return UpdateSeconds() * kFewestUpdates / kLargestGain <= FittingBudget() / 2;
}

int64_t FitPlan::UpdatesBesideSearch() const {
  const double left = SearchBudget() - CandidateSeconds();  // nothing is planned yet
  const double enough = kEnoughTrials * kEnoughSeeds * TrialSeconds(request().start);
  const double updates = (left - std::min(left / 2, enough)) / UpdateSeconds();
  return updates < kFewestUpdates
             ? 0
             : static_cast<int64_t>(std::min(updates, static_cast<double>(kMostUpdates)));
}

int64_t FitPlan::UpdatesLeft() const {
  const double left = FittingBudget() - record_.FittingSeconds() - CandidateSeconds();
  return static_cast<int64_t>(std::clamp(left / UpdateSeconds(),
                                         static_cast<double>(kFewestUpdates),
                                         static_cast<double>(kMostUpdates)));
}

int64_t FitPlan::SearchSeeds() const {
  if (request().trials) return 1;
  const double trials = SearchBudget() / TrialSeconds(request().start);
  return static_cast<int64_t>(
      std::clamp(std::floor(trials / kEnoughTrials), 1.0, static_cast<double>(kEnoughSeeds)));
}

int64_t FitPlan::NextRound() const {
  const int64_t searched = Searched();
  if (searched % kTrialsPerRound != 0) return 0;  // only the last round is shorter
  int64_t more = 0;
  if (request().trials) {
    // Beside the search: the first trial of a kind that it begins was tried before it.
    const auto beside = [&](int64_t planned) {
      return DividedRoundingUp(Kinds() * kTrialsPerRound, kMultiplierPart) + KindTrials() -
             BegunKinds(planned) + (1 + Finalists(planned)) * kCandidateSeeds;
    };
    int64_t all = *request().trials;
    while (all > kFewestTrials && all + beside(all) > *request().trials) --all;
    more = all - searched;
  } else {
    const double trial = SearchTrialSeconds();
    const double taken = record_.search ? record_.search->seconds : 0;
    const double in_time = std::min((SearchBudget() - taken) / trial, 1.0 * kMostTrials);
    more =
        std::max(static_cast<int64_t>(std::floor(in_time)) + SearchedKinds() - BegunKinds(searched),
                 SearchedKinds() * kTrialsPerRound - searched);
  }
  return std::clamp<int64_t>(more, 0, kTrialsPerRound);
}

double FitPlan::SearchTrialSeconds() const {
  return TrialSeconds(request().start, record_.measured->search_seeds) * Slowdown();
}

double FitPlan::SearchShare(int64_t more) const {
  const double trial = SearchTrialSeconds();
  const double done = trial * static_cast<double>(Searched() + more);
  return done > 0 ? std::min(1.0, done / std::max(done, ExpectedSearch())) : 0;
}

FitPlan::Tuning FitPlan::TuningOf(const std::string& rival) const {
  if (request().trials) return {.trials = *request().trials};
  const double fitting =
      record_.candidates ? record_.FittingSeconds() : std::max(FittingBudget(), 0.0);
  const double trainings = std::ceil(fitting / (TrainingSeconds(rival) * Slowdown()));
  const double seeds = std::clamp(std::ceil(trainings / kMostTunedTrials), 1.0,
                                  static_cast<double>(kMostTuningSeeds));
  const double trial = TrialSeconds(rival, static_cast<int64_t>(seeds)) * Slowdown();
  const double trials = std::clamp(std::ceil(fitting / trial), static_cast<double>(kFewestTrials),
                                   static_cast<double>(kMostTunedTrials));
  return {.trials = static_cast<int64_t>(trials), .seeds = static_cast<int64_t>(seeds)};
}

// Of the search, done and to come.
double FitPlan::ExpectedSearch() const {
  if (record_.bases) return record_.search->seconds;
  if (!request().trials) return std::max(SearchBudget(), 0.0);
  return TrialSeconds(request().start) * static_cast<double>(*request().trials);
}

std::vector<std::pair<FitStage, double>> FitPlan::Stages() const {
  const double meta = MetaSeconds();
  const double candidate = std::min(meta, CandidateSeconds());
  std::vector<std::pair<FitStage, double>> stages = {
      {{FitPhase::kStepSizes}, StepSizesSeconds()},
      {{FitPhase::kKinds}, KindsSeconds()},
      {{FitPhase::kSearch}, ExpectedSearch()},
      {{FitPhase::kBases}, FinalSeconds(kEnoughTrials)},
      {{FitPhase::kMetaTraining}, meta - candidate},
      {{FitPhase::kMetaTrained}, candidate}};
  const auto seeds = static_cast<double>(request().seeds);
  for (const char* name : {kFitted, request().start.c_str()}) {
    stages.emplace_back(FitStage{FitPhase::kJudging, name},
                        seeds * TrainingSeconds(request().start));
  }
  for (const Baseline& rival : FitRivals()) {
    const Tuning tuning = TuningOf(rival.name);
    const double trials =
        static_cast<double>(tuning.trials) * TrialSeconds(rival.name, tuning.seeds) * Slowdown();
    stages.emplace_back(FitStage{FitPhase::kJudging, rival.name},
                        trials + seeds * TrainingSeconds(rival.name));
  }
  return stages;
}

}  // namespace lopt
