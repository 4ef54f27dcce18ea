#include "lopt/tools/fit/fit_comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/evaluation/evaluated_optimizers.h"
#include "lopt/evaluation/evaluation_run.h"
#include "lopt/evaluation/results_file.h"
#include "lopt/evaluation/trials.h"
#include "lopt/tools/fit/fit_plan.h"

namespace lopt {
namespace {

std::string DirectoryOf(const FitDirectory& directory, const std::string& name) {
  return directory.PathOf(kFitCompareDirectory) + "/" + name;
}

std::string ResultsOf(const FitDirectory& directory, const std::string& name) {
  return DirectoryOf(directory, name) + "/results.jsonl";
}

// What tuning chose.
std::map<std::string, double> TunedValues(const RunResult& run) {
  std::map<std::string, double> values;
  if (!run.learning_rate.empty()) values[kLearningRate] = run.learning_rate.front();
  for (const auto& [option, chosen] : run.hyperparameters) values[option] = chosen.front();
  return values;
}

std::vector<RunResult> RunsOf(const FitDirectory& directory, const std::string& name) {
  return ReadResults(ResultsOf(directory, name)).runs;
}

std::vector<double> TestLosses(const std::vector<RunResult>& runs) {
  std::vector<double> losses;
  for (const RunResult& run : runs) losses.push_back(run.test_loss.front());
  return losses;
}

bool HasResults(const FitDirectory& directory, const std::string& name) {
  try {
    return Exists(ResultsOf(directory, name)) &&
           std::ssize(RunsOf(directory, name)) == directory.request().seeds;
  } catch (const Error&) {
    return false;
  }
}

NamedLearnedOptimizer NamedInFit(const FitDirectory& directory, const std::string& name,
                                 const char* file) {
  const std::string path = directory.PathOf(file);
  return NamedLearnedOptimizerOf(name, ReadThetaFile(path), path);
}

// Tunes it if there are trials, and judges it. `contender` has the seconds of what came before.
bool JudgeContender(FitContext* fit, FitContender contender, const EvaluatedOptimizers& optimizer) {
  FitRecord& record = fit->record();
  const FitRequest& request = fit->request();
  if (std::ranges::find(record.contenders, contender.name, &FitContender::name) !=
      record.contenders.end()) {
    return true;
  }
  const FitStage stage{FitPhase::kJudging, contender.name};
  fit->tell(stage, 0);
  const EvaluationConfig config{.name = contender.name,
                                .steps = {request.steps},
                                .seeds = request.seeds,
                                .trials = std::max(contender.trials, kFewestTrials),
                                .tuning_seeds = contender.tuning_seeds,
                                .seed = request.seed,
                                .data_dir = request.data_dir,
                                .tasks = {{.name = "task", .task = request.task}}};
  const EvaluationRunResult result = RunEvaluation(
      config, optimizer,
      {.out_dir = DirectoryOf(fit->directory, contender.name),
       .threads = fit->options.threads,
       .existing = ExistingEvaluation::kReplace,
       .command = "lopt fit",
       .version = fit->options.version,
       .on_progress = [&](const EvaluationProgress& progress) { fit->tell(stage, progress.done); },
       .stop = fit->options.stop});
  if (result.tasks_ended < result.tasks) return false;
  contender.seconds += result.seconds;
  const std::vector<RunResult> runs = RunsOf(fit->directory, contender.name);
  const double loss = FitJudged{.test_loss = TestLosses(runs)}.Mean();
  if (std::isfinite(loss)) contender.test_loss = loss;
  if (contender.trials > 0) contender.tuned = TunedValues(runs.front());
  record.contenders.push_back(std::move(contender));
  fit->directory.Save();
  return true;
}

}  // namespace

const std::vector<Baseline>& FitRivals() {
  static const std::vector<Baseline> rivals = [] {
    std::vector<Baseline> all = BaselinesNamed("AdamW-cosine-decay,Muon-cosine");
    all.push_back({.name = "random-search",
                   .optimizer = Config::Parse(
                       R"({"type": "LearnableAdam", "epsilon_root": 0, "schedule": "cosine"})",
                       "random-search"),
                   .tuned = {{.name = kLearningRate, .lowest = 1e-4, .highest = 1},
                             {.name = "weight_decay", .lowest = 1e-3, .highest = 1},
                             {.name = "beta1", .lowest = 0.02, .highest = 0.5, .one_minus = true},
                             {.name = "beta2", .lowest = 1e-3, .highest = 0.2, .one_minus = true}},
                   .random_search = true});
    return all;
  }();
  return rivals;
}

bool CompareFit(FitContext* fit) {
  FitRecord& record = fit->record();
  // A machine that went down may have lost results that fit.json tells of: from the first of these
  // on all are judged anew.
  const auto lost = std::ranges::find_if(record.contenders, [&](const FitContender& one) {
    return !HasResults(fit->directory, one.name);
  });
  record.contenders.erase(lost, record.contenders.end());
  // The first candidate is the start.
  if (record.candidates->best > 0 &&
      !JudgeContender(fit, {.name = kFitted, .seconds = record.FittingSeconds()},
                      {.learned = {NamedInFit(fit->directory, kFitted, kFitThetaFile)}})) {
    return false;
  }
  const std::string& start = fit->request().start;
  if (!JudgeContender(fit, {.name = start},
                      {.learned = {NamedInFit(fit->directory, start, kFitStartFile)}})) {
    return false;
  }
  return std::ranges::all_of(FitRivals(), [&](const Baseline& rival) {
    const FitPlan::Tuning tuning = FitPlan(record, fit->options.threads).TuningOf(rival.name);
    return JudgeContender(
        fit, {.name = rival.name, .trials = tuning.trials, .tuning_seeds = tuning.seeds},
        {.baselines = {rival}});
  });
}

std::vector<FitJudged> ReadFitJudged(const FitDirectory& directory) {
  std::vector<FitJudged> judged;
  for (const FitContender& contender : directory.record().contenders) {
    judged.push_back(
        {.contender = contender, .test_loss = TestLosses(RunsOf(directory, contender.name))});
  }
  return judged;
}

}  // namespace lopt
