#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <string>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/tools/fit/fit_candidate.h"
#include "lopt/tools/fit/fit_comparison.h"
#include "lopt/tools/fit/fit_meta.h"
#include "lopt/tools/fit/fit_parts.h"
#include "lopt/tools/fit/fit_plan.h"

namespace lopt {
namespace {

constexpr int64_t kMeasuredPairs = 4;

// A file of the start while it lives: as long as measuring may fail, the directory's are those of
// the fit that is to be replaced.
class StartFile {
 public:
  explicit StartFile(const FitDirectory& directory)
      : path_(directory.PathOf(kFitStartFile) + ".tmp.measuring") {
    WriteThetaFile(path_, directory.start());
  }
  ~StartFile() {
    try {
      RemoveAll(path_);
    } catch (const Error& error) {
      spdlog::warn("{}", error.what());
    }
  }
  StartFile(const StartFile&) = delete;
  StartFile& operator=(const StartFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The expected seconds of an update of theta, by one of fewer pairs that is not kept.
double MeasureUpdate(const FitContext& fit, bool log_loss) {
  const FitRequest& request = fit.request();
  const StartFile start(fit.directory);
  const MetaTrainResult result = RunMetaTraining(
      FitMetaConfig(request, fit.directory.start().learned_optimizer, log_loss, 1, kMeasuredPairs,
                    start.path()),
      {.threads = fit.options.threads, .version = fit.options.version, .stop = fit.options.stop});
  int64_t inner_steps = 0;
  for (const StepCounts& counts : result.totals) inner_steps += counts.inner_steps;
  return result.seconds / static_cast<double>(std::max<int64_t>(inner_steps, 1)) *
         TrainingsOfUpdate(request.steps) * static_cast<double>(request.steps);
}

// For how many seconds trainings are measured. Where the request gives both updates and trials,
// only the time that is said to be left depends on it.
double EnoughSeconds(const FitRequest& request) {
  return request.updates && request.trials ? 0.02 : 0.2;
}

// The seconds of a rival's training, with the first values that it tries.
double MeasureRival(FitContext* fit, const Baseline& rival, Key key) {
  const auto optimizer = rival.Make(NextTrials(rival.tuned, {}).front());
  const Eigen::VectorXf theta = optimizer->InitTheta(Key{});
  const auto rule = optimizer->Bind(fit->directory.task()->params_layout(), AsSpan(theta));
  const FitRequest& request = fit->request();
  return fit->trainings.Measure(*rule, request.steps, key, EnoughSeconds(request)).seconds;
}

}  // namespace

bool MeasureFit(FitContext* fit) {
  FitRecord& record = fit->record();
  const FitRequest& request = fit->request();
  if (record.measured) return true;
  fit->tell({FitPhase::kMeasuring}, 0);
  const auto start = SteadyClock::now();
  const auto rule = BindCandidate(fit->directory.start(), *fit->directory.task());
  const Key key = FitKey(*fit, FitDraw::kMeasure);
  const double enough = EnoughSeconds(request);
  fit->trainings.Measure(*rule, 1, key, 0);  // what is slow once only
  FitMeasurement found = {.threads = fit->options.threads};
  const FitTrainings::Speed speed = fit->trainings.Measure(*rule, request.steps, key, enough);
  found.training[request.start] = speed.seconds;
  found.log_loss = speed.positive_loss;
  found.kinds = FitKindsOf(fit->directory.start(), fit->directory.task()->params_layout());
  for (const std::string& kind : found.kinds) {
    const std::string name = FitTrainingName(request.start, kind);
    if (found.training.contains(name)) continue;
    const auto other = BindCandidate(MakeCandidate(fit->directory.start(), {.kind = kind}),
                                     *fit->directory.task());
    found.training[name] = fit->trainings.Measure(*other, request.steps, key, enough).seconds;
  }
  for (const Baseline& rival : FitRivals()) {
    if (fit->stopped()) return false;
    found.training[rival.name] = MeasureRival(fit, rival, key);
  }
  record.measured = found;
  const FitPlan plan(record, fit->options.threads);
  if (!request.updates && plan.MayMetaTrain()) {
    record.measured->update_seconds = MeasureUpdate(*fit, found.log_loss);
  }
  if (fit->stopped()) {
    record.measured.reset();
    return false;
  }
  record.measured->seconds = FitSecondsSince(start);
  if (!request.updates || !request.trials) plan.RequireTime();
  if (request.updates) {
    record.measured->updates = *request.updates;
  } else if (record.measured->update_seconds > 0) {
    record.measured->updates = plan.UpdatesBesideSearch();
  }
  record.measured->search_seeds = plan.SearchSeeds();
  fit->directory.Save();
  return true;
}

}  // namespace lopt
