#include "lopt/tools/fit/fit_meta.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "lopt/base/file.h"
#include "lopt/base/options.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/tools/fit/fit_parts.h"
#include "lopt/tools/fit/fit_plan.h"

namespace lopt {
namespace {

constexpr int64_t kShortestPart = 8;  // of the steps

int64_t ShortestLength(int64_t steps) { return steps / kShortestPart; }

// Losses of whole trainings may be below 0 where those of the first steps are not.
bool WantsLogLoss(const FitRecord& record) {
  const auto has_log = [](const FitTrial& trial) { return trial.loss.value_or(0) >= 0; };
  return record.measured->log_loss && std::ranges::all_of(record.search->trials, has_log) &&
         std::ranges::all_of(record.bases->trials, has_log);
}

// Between two notes of how long meta-training has taken, for fits that are killed.
constexpr double kNotedSeconds = 10;

}  // namespace

double TrainingsOfUpdate(int64_t steps) {
  // The mean of LogUniformLengthSchedule, and two trainings a pair.
  const auto shortest = static_cast<double>(ShortestLength(steps));
  const auto longest = static_cast<double>(steps);
  return 2 * kFitPairs * (longest - shortest) / std::log(longest / shortest) / longest;
}

MetaTrainConfig FitMetaConfig(const FitRequest& request, const Config& learned_optimizer,
                              bool log_loss, int64_t updates, int64_t pairs,
                              const std::string& init_theta) {
  MetaTrainConfig config;
  config.name = "fit";
  config.learned_optimizer = learned_optimizer;
  config.init_theta = init_theta;
  config.theta_opt = Config::Parse(
      R"({"type": "AdamW", "learning_rate": 0.003, "weight_decay": 0, "clip_by_global_norm": 1,
          "schedule": {"type": "WarmupCosine", "warmup_fraction": 0, "final_scale": 0.03}})",
      "fit");
  config.estimators = {Config::Parse(
      fmt::format(R"({{"type": "FullES", "task": {}, "num_tasks": {}, "std": 0.05,
                      "loss_type": "last_recompute", "meta_loss": "outer_valid"{},
                      "lengths": {{"type": "LogUniformLengthSchedule", "min_length": {},
                                   "max_length": {}}}}})",
                  request.task.Dump(-1), pairs, log_loss ? R"(, "meta_loss_log": 1e-20)" : "",
                  ShortestLength(request.steps), request.steps),
      "fit")};
  config.meta_steps = updates;
  config.seed = request.seed;
  config.data_dir = request.data_dir;
  return config;
}

bool MetaTrainBase(FitContext* fit) {
  FitRecord& record = fit->record();
  if (record.meta_ended) return true;
  if (record.measured->updates > 0) {
    const FitStage stage{FitPhase::kMetaTraining};
    fit->tell(stage, 0);
    const std::string directory = fit->directory.PathOf(kFitMetaDirectory);
    const bool resume = Exists(directory + "/manifest.json");
    if (!resume && !fit->request().updates) {
      // The search may have taken another time than expected.
      record.measured->updates = FitPlan(record, fit->options.threads).UpdatesLeft();
      fit->directory.Save();
    }
    const std::string base = fit->directory.PathOf(kFitBaseFile);
    MetaTrainConfig config =
        FitMetaConfig(fit->request(), ReadThetaFile(base).learned_optimizer, WantsLogLoss(record),
                      record.measured->updates, kFitPairs, base);
    // Its path may have been another then.
    if (resume && Exists(directory + "/config.json")) {
      config.init_theta =
          ReadOptions<MetaTrainConfig>(Config::Load(directory + "/config.json")).init_theta;
    }
    MetaTrainerOptions options{.out_dir = directory, .threads = fit->options.threads};
    options.resume = resume;
    options.version = fit->options.version;
    options.stop = fit->options.stop;
    const double before = record.meta_seconds;
    auto noted = SteadyClock::now();
    options.on_step = [&](const MetaTrainProgress& step) {
      record.meta_seconds = before + step.seconds;
      if (FitSecondsSince(noted) >= kNotedSeconds) {
        fit->directory.Save();
        noted = SteadyClock::now();
      }
      fit->tell(stage, static_cast<double>(step.updates) / static_cast<double>(step.meta_steps));
    };
    const MetaTrainResult result = RunMetaTraining(config, options);
    record.meta_seconds = before + result.seconds;
    fit->directory.Save();
    if (result.interrupted) return false;
  }
  record.meta_ended = true;
  fit->directory.Save();
  return true;
}

}  // namespace lopt
