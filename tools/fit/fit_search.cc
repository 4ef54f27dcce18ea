#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/evaluation/trials.h"
#include "lopt/tools/fit/fit_candidate.h"
#include "lopt/tools/fit/fit_meta.h"
#include "lopt/tools/fit/fit_parts.h"
#include "lopt/tools/fit/fit_plan.h"

namespace lopt {
namespace {

// Names of candidates beside the start's.
constexpr const char* kSearched = "searched";
constexpr const char* kMetaTrained = "meta-trained";

double LossOf(const FitTrial& trial) {
  return trial.loss.value_or(std::numeric_limits<double>::infinity());
}

const FitTrial& Best(const FitSearch& search) {
  return search.trials[static_cast<size_t>(search.best)];
}

// How candidates are trained to be compared.
struct FitTrainingPlan {
  FitStage stage;
  int64_t steps = 0;
  int64_t seeds = 1;
  FitDraw draw = FitDraw::kCandidate;
  double share_before = 0;  // of the stage
  double share = 1;
};

// Trains candidates, [trials], and notes what they gave; nothing if it was stopped.
std::optional<FitSearch> TryCandidates(FitContext* fit, std::vector<FitTrial> trials,
                                       const std::vector<ThetaFile>& candidates,
                                       const FitTrainingPlan& plan) {
  const auto start = SteadyClock::now();
  FitTrainings::Rules rules;
  for (const ThetaFile& candidate : candidates) {
    rules.push_back(BindCandidate(candidate, *fit->directory.task()));
  }
  const std::vector<double> losses = fit->trainings.Losses(
      rules, plan.steps, plan.seeds, FitKey(*fit, plan.draw),
      [&](double done) { fit->tell(plan.stage, plan.share_before + plan.share * done); });
  if (losses.empty()) return std::nullopt;
  for (size_t i = 0; i < trials.size(); ++i) {
    trials[i].loss = std::isfinite(losses[i]) ? std::optional(losses[i]) : std::nullopt;
  }
  const auto best = std::ranges::min_element(losses) - losses.begin();
  return FitSearch{.seconds = FitSecondsSince(start), .trials = std::move(trials), .best = best};
}

void AddTrial(const FitTrial& trial, FitSearch* all) {
  all->trials.push_back(trial);
  if (LossOf(trial) < LossOf(Best(*all))) all->best = std::ssize(all->trials) - 1;
}

// Tries what is made of the start, and adds it to `all`. False if it was stopped.
bool AddTrials(FitContext* fit, const std::vector<FitTrial>& trials, const FitTrainingPlan& plan,
               FitSearch* all) {
  std::vector<ThetaFile> candidates;
  for (const FitTrial& trial : trials) {
    candidates.push_back(MakeCandidate(fit->directory.start(), trial));
  }
  const auto found = TryCandidates(fit, trials, candidates, plan);
  if (!found) return false;
  all->seconds += found->seconds;
  for (const FitTrial& trial : found->trials) AddTrial(trial, all);
  return true;
}

// The trials of one kind, in their order.
std::vector<FitTrial> TrialsOfKind(const FitSearch& search, const std::string& kind) {
  std::vector<FitTrial> trials;
  for (const FitTrial& trial : search.trials) {
    if (trial.kind == kind) trials.push_back(trial);
  }
  return trials;
}

// The best of one kind, the first of equals.
FitTrial BestOfKind(const FitSearch& search, const std::string& kind) {
  const std::vector<FitTrial> trials = TrialsOfKind(search, kind);
  Require(!trials.empty(), "fit: nothing was tried of the kind '{}'", kind);
  return *std::ranges::min_element(trials, {}, LossOf);
}

// The kinds that were best in whole trainings, the best first.
std::vector<std::string> SearchedKindsOf(const FitRecord& record) {
  std::vector<std::string> kinds = record.measured->kinds;
  std::ranges::stable_sort(
      kinds, {}, [&](const std::string& kind) { return LossOf(BestOfKind(*record.kinds, kind)); });
  if (std::ssize(kinds) > kMostSearchedKinds) kinds.resize(kMostSearchedKinds);
  return kinds;
}

// What the search tunes.
std::vector<TunedHyperparameter> Searched(double multiplier, bool momentum) {
  constexpr double kReach = 4;
  std::vector<TunedHyperparameter> tuned = {
      {.name = kStepMultiplier, .lowest = multiplier / kReach, .highest = multiplier * kReach},
      {.name = "decay", .lowest = 1. / 16, .highest = 64}};
  if (momentum) {
    tuned.push_back({.name = "momentum", .lowest = 0.02, .highest = 0.5, .one_minus = true});
  }
  return tuned;
}

// The first `count` trials of the next round of one kind. The first of the first round is the one
// that was tried to compare the kinds.
std::vector<FitTrial> NextCandidates(const FitContext& fit, const FitSearch& search,
                                     const std::string& kind, int64_t count) {
  const FitTrial compared = BestOfKind(*fit.directory.record().kinds, kind);
  const std::optional<double> momentum = OwnMomentum(fit.directory.start(), kind);
  std::vector<TunedTrial> tried;
  for (const FitTrial& trial : TrialsOfKind(search, kind)) {
    TunedTrial& one = tried.emplace_back(
        TunedTrial{.values = {trial.multiplier, trial.decay}, .loss = LossOf(trial)});
    if (momentum) one.values.push_back(trial.momentum.value_or(*momentum));
  }
  std::vector<FitTrial> trials;
  for (const std::vector<double>& values :
       NextTrials(Searched(compared.multiplier, momentum.has_value()), tried)) {
    FitTrial& trial =
        trials.emplace_back(FitTrial{.kind = kind, .multiplier = values[0], .decay = values[1]});
    if (momentum) trial.momentum = values[2];
  }
  if (tried.empty()) trials.front() = compared;
  trials.resize(static_cast<size_t>(count));
  return trials;
}

// Whether a trial is of the start as it is.
bool IsStart(const FitTrial& trial) {
  return trial.kind == kTrainedKind && trial.multiplier == 1 && trial.decay == 1 && !trial.momentum;
}

// What a stop leaves.
void WriteBestSoFar(FitContext* fit, const FitTrial& best) {
  const ThetaFile& start = fit->directory.start();
  fit->directory.WriteTheta(kFitThetaFile, IsStart(best) ? start : MakeCandidate(start, best));
}

// The kind of the next round: those that have none, the best first, then that of the best trial.
std::string NextKind(const FitRecord& record, const FitSearch& search) {
  for (const std::string& kind : SearchedKindsOf(record)) {
    if (TrialsOfKind(search, kind).empty()) return kind;
  }
  return Best(search).kind;
}

// The best of the search's trials, the best first. The start as it is competes anyway.
std::vector<FitTrial> FinalistsOf(const FitSearch& search) {
  std::vector<FitTrial> trials = search.trials;
  std::erase_if(trials, IsStart);
  std::ranges::stable_sort(trials, {}, LossOf);
  const auto most = static_cast<size_t>(Finalists(std::ssize(search.trials)));
  if (trials.size() > most) trials.resize(most);
  return trials;
}

}  // namespace

bool TryStepSizes(FitContext* fit) {
  FitRecord& record = fit->record();
  if (record.steps) return true;
  const FitStage stage{FitPhase::kStepSizes};
  fit->tell(stage, 0);
  const std::vector<TunedHyperparameter> tuned = {
      {.name = kStepMultiplier, .lowest = 1. / 32, .highest = 32}};
  const std::vector<std::vector<double>> round = NextTrials(tuned, {});
  const std::vector<std::string>& kinds = record.measured->kinds;
  FitTrainingPlan plan{.stage = stage,
                       .steps = fit->request().steps / kMultiplierPart,
                       .draw = FitDraw::kMultiplier,
                       .share = 1.0 / static_cast<double>(kinds.size())};
  FitSearch all;
  for (const std::string& kind : kinds) {
    std::vector<FitTrial> trials;
    for (const std::vector<double>& values : round) {
      trials.push_back({.kind = kind, .multiplier = values.front()});
    }
    if (!AddTrials(fit, trials, plan, &all)) return false;
    plan.share_before += plan.share;
  }
  record.steps = std::move(all);
  fit->directory.Save();
  return true;
}

bool TryKinds(FitContext* fit) {
  FitRecord& record = fit->record();
  if (record.kinds) return true;
  const FitStage stage{FitPhase::kKinds};
  fit->tell(stage, 0);
  std::vector<FitTrial> trials = {{.name = fit->request().start}};
  for (const std::string& kind : record.measured->kinds) {
    const FitTrial trial{.kind = kind, .multiplier = BestOfKind(*record.steps, kind).multiplier};
    if (!IsStart(trial)) trials.push_back(trial);
  }
  FitSearch all;
  if (!AddTrials(fit, trials,
                 {.stage = stage,
                  .steps = fit->request().steps,
                  .seeds = record.measured->search_seeds,
                  .draw = FitDraw::kSearch},
                 &all)) {
    return false;
  }
  record.kinds = std::move(all);
  WriteBestSoFar(fit, Best(*record.kinds));
  fit->directory.Save();
  return true;
}

bool SearchCandidates(FitContext* fit) {
  FitRecord& record = fit->record();
  if (record.bases) return true;
  const FitStage stage{FitPhase::kSearch};
  fit->tell(stage, FitPlan(record, fit->options.threads).SearchShare(0));
  for (;;) {
    const FitPlan plan(record, fit->options.threads);
    FitSearch all = record.search.value_or(FitSearch());
    const int64_t count = plan.NextRound();
    if (count == 0) return true;
    const std::string kind = NextKind(record, all);
    const double before = plan.SearchShare(0);
    std::vector<FitTrial> trials = NextCandidates(*fit, all, kind, count);
    if (TrialsOfKind(all, kind).empty()) {  // its first was tried to compare the kinds
      AddTrial(trials.front(), &all);
      trials.erase(trials.begin());
    }
    if (!trials.empty() && !AddTrials(fit, trials,
                                      {.stage = stage,
                                       .steps = fit->request().steps,
                                       .seeds = record.measured->search_seeds,
                                       .draw = FitDraw::kSearch,
                                       .share_before = before,
                                       .share = plan.SearchShare(count) - before},
                                      &all)) {
      return false;
    }
    record.search = std::move(all);
    WriteBestSoFar(fit, Best(*record.search));
    fit->directory.Save();
  }
}

bool TryBases(FitContext* fit) {
  FitRecord& record = fit->record();
  if (record.bases) return true;
  const FitStage stage{FitPhase::kBases};
  fit->tell(stage, 0);
  std::vector<FitTrial> trials = {{.name = fit->request().start}};
  std::vector<ThetaFile> candidates = {fit->directory.start()};
  for (FitTrial trial : FinalistsOf(*record.search)) {
    trial.name = kSearched;
    candidates.push_back(MakeCandidate(fit->directory.start(), trial));
    trials.push_back(std::move(trial));
  }
  const auto found = TryCandidates(fit, trials, candidates,
                                   {.stage = stage,
                                    .steps = fit->request().steps,
                                    .seeds = kCandidateSeeds * record.measured->search_seeds});
  if (!found) return false;
  const ThetaFile& best = candidates[static_cast<size_t>(found->best)];
  fit->directory.WriteTheta(kFitBaseFile, best);
  fit->directory.WriteTheta(kFitThetaFile, best);
  record.bases = found;
  fit->directory.Save();
  return true;
}

bool TryMetaTrained(FitContext* fit) {
  FitRecord& record = fit->record();
  if (record.candidates) return true;
  FitSearch all = *record.bases;
  all.seconds = 0;
  if (record.measured->updates > 0) {
    const FitStage stage{FitPhase::kMetaTrained};
    fit->tell(stage, 0);
    ThetaFile trained =
        ReadThetaFile(fit->directory.PathOf(kFitMetaDirectory) + "/theta.safetensors");
    trained.chosen_on = "inner_valid";
    FitTrial trial = Best(all);
    trial.name = kMetaTrained;
    const auto found = TryCandidates(fit, {trial}, {trained},
                                     {.stage = stage,
                                      .steps = fit->request().steps,
                                      .seeds = kCandidateSeeds * record.measured->search_seeds});
    if (!found) return false;
    const double base = LossOf(Best(all));
    all.seconds = found->seconds;
    all.trials.push_back(found->trials.front());
    if (LossOf(all.trials.back()) < base) {
      all.best = std::ssize(all.trials) - 1;
      fit->directory.WriteTheta(kFitThetaFile, trained);
    }
  }
  record.candidates = std::move(all);
  fit->directory.Save();
  return true;
}

}  // namespace lopt
