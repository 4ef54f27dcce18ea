#include "lopt/tools/fit/fit.h"

#include <limits>
#include <utility>

#include "lopt/base/file.h"
#include "lopt/tools/fit/fit_comparison.h"
#include "lopt/tools/fit/fit_context.h"
#include "lopt/tools/fit/fit_parts.h"
#include "lopt/tools/fit/fit_plan.h"

namespace lopt {
namespace {

// What the seed's key is folded with; neither meta-training nor evaluations fold it with that.
constexpr uint64_t kFitDomain = std::numeric_limits<uint64_t>::max() - 1;

// Tells that this share of a stage is done.
void TellProgress(const FitContext& fit, const FitStage& stage, double share) {
  const auto& on_progress = fit.options.on_progress;
  if (!on_progress) return;
  const FitRecord& record = fit.directory.record();
  if (!record.measured) {
    on_progress({.phase = stage.Text()});
    return;
  }
  double done = 0;
  double left = 0;
  bool before = true;
  for (const auto& [one, seconds] : FitPlan(record, fit.options.threads).Stages()) {
    const double part = one == stage ? share : before ? 1 : 0;
    if (one == stage) before = false;
    done += part * seconds;
    left += (1 - part) * seconds;
  }
  on_progress({.phase = stage.Text(), .done = done / (done + left), .seconds_left = left});
}

}  // namespace

double FitRecord::FittingSeconds() const {
  return measured.value_or(FitMeasurement()).seconds + steps.value_or(FitSearch()).seconds +
         kinds.value_or(FitSearch()).seconds + search.value_or(FitSearch()).seconds +
         bases.value_or(FitSearch()).seconds + meta_seconds +
         candidates.value_or(FitSearch()).seconds;
}

FitResult RunFit(const FitRequest& request, const ThetaFile& start, const FitOptions& options) {
  FitDirectory directory(request, start, options);
  FitTrainings trainings(directory.task(), options.threads, options.stop);
  const Key seed = KeyFromSeed(static_cast<uint64_t>(directory.request().seed));
  FitContext fit{options, {}, directory, trainings, FoldIn(seed, kFitDomain)};
  fit.tell = [&fit](const FitStage& stage, double share) { TellProgress(fit, stage, share); };

  directory.record().status = "running";
  if (directory.record().measured) directory.Save();  // else what is to be replaced stays for now
  const bool ended = MeasureFit(&fit) && TryStepSizes(&fit) && TryKinds(&fit) &&
                     SearchCandidates(&fit) && TryBases(&fit) && MetaTrainBase(&fit) &&
                     TryMetaTrained(&fit) && CompareFit(&fit);
  FitResult result{.interrupted = !ended};
  if (!ended && directory.HoldsAnother()) {
    result.kept_other = true;
    result.record = fit.record();
    result.theta = directory.start();
    return result;
  }
  if (ended) {
    result.judged = ReadFitJudged(directory);
    const FitVerdict verdict = JudgeFit(result.judged);
    fit.record().take = verdict.take;
    fit.record().verdict = verdict.text;
    result.report = FitTable(result.judged) + "\n" + verdict.text + "\n";
    directory.WriteReport(result.report);
  }
  directory.Save(ended ? "finished" : "interrupted");
  result.record = fit.record();
  result.theta = ReadThetaFile(directory.PathOf(kFitThetaFile));
  return result;
}

}  // namespace lopt
