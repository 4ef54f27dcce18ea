#include "learner/meta_trainer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/isa.h"
#include "base/parallel.h"
#include "estimators/registry.h"
#include "learner/checkpoint.h"
#include "learner/run_directory.h"
#include "learner/theta_file.h"
#include "learner/theta_opt.h"
#include "learner/worker.h"
#include "lopt/registry.h"
#include "tasks/image_data.h"
#include "tasks/registry.h"

namespace lopt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMetricsFlushSeconds = 1;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double WallTimeSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What a config describes, made.
struct Experiment {
  explicit Experiment(const MetaTrainConfig& config)
      : optimizer(OptimizerRegistry().Make(config.learned_optimizer)),
        learner(optimizer, ThetaOptRegistry().Make(config.theta_opt),
                config.non_finite_gradient == "abort" ? NonFiniteGradient::kAbort
                                                      : NonFiniteGradient::kSkip),
        run_key(KeyFromSeed(static_cast<uint64_t>(config.seed))) {
    const TaskResources resources = MakeTaskResources(config.data_dir);
    for (const Config& estimator : config.estimators) {
      estimators.push_back(EstimatorRegistry().Make(estimator, optimizer, resources));
      estimator_names.push_back(EstimatorName(estimators, estimators.size() - 1));
    }
    Require(config.data_dir.empty() || resources.images->data_dir_used(),
            "data_dir is {}, but no task of the config reads images from it", config.data_dir);
    for (int64_t w = 0; w < config.workers; ++w) {
      worker_keys.push_back(WorkerKey(run_key, w));
    }
  }

  std::shared_ptr<const LearnedOptimizer> optimizer;
  GradientLearner learner;
  Estimators estimators;
  std::vector<std::string> estimator_names;
  Key run_key;
  std::vector<Key> worker_keys;  // of the logical workers
};

// Both metrics files.
class MetricsLog {
 public:
  MetricsLog(const std::string& directory, int64_t keep_below)
      : lines_(directory, keep_below), events_(directory, WallTimeSeconds(), keep_below) {}

  void Write(int64_t step, const Metrics& metrics) {
    lines_.Write(step, metrics);
    events_.Write(step, WallTimeSeconds(), metrics);
    if (SecondsSince(flushed_) >= kMetricsFlushSeconds) {
      Flush();
    }
  }

  void Flush() {
    lines_.Flush();
    events_.Flush();
    flushed_ = Clock::now();
  }

 private:
  MetricsWriter lines_;
  TensorBoardWriter events_;
  Clock::time_point flushed_ = Clock::now();
};

class Trainer {
 public:
  Trainer(const MetaTrainConfig& config, const MetaTrainerOptions& options)
      : config_(config),
        options_(options),
        resolved_(WriteOptions("", config)),
        experiment_(config),
        directory_(options.out_dir),
        store_(directory_.CheckpointPath(),
               {.keep_last = config.keep_last, .keep_every = config.keep_every}, options.on_event) {
  }

  MetaTrainResult Run() {
    if (!Writes()) {
      StartFresh(options_.init_theta);
      return Loop();
    }
    Prepare();
    try {
      return Loop();
    } catch (const std::exception& error) {
      // The cause matters more than a manifest that cannot be written.
      try {
        WriteManifest("failed", error.what());
      } catch (const Error& second) {
        spdlog::error("{}", second.what());
      }
      throw;
    }
  }

 private:
  bool Writes() const { return !options_.out_dir.empty(); }

  void Event(std::string_view what) const {
    if (options_.on_event) {
      options_.on_event(what);
    }
  }

  // Sets the state to that before the first update.
  void StartFresh(const std::string& init_theta) {
    const GradientLearner& learner = experiment_.learner;
    learner_ = init_theta.empty()
                   ? learner.Init(ThetaKey(experiment_.run_key))
                   : learner.Init(ReadThetaFile(init_theta, LearnedOptimizerConfig()).theta);
    const WorkerWeights weights = learner.GetStateForWorker(learner_);
    workers_.resize(experiment_.worker_keys.size());
    ParallelFor(static_cast<int64_t>(workers_.size()), [&](int64_t w) {
      const auto worker = static_cast<size_t>(w);
      workers_[worker] =
          InitWorkerState(weights, experiment_.estimators, experiment_.worker_keys[worker]);
    });
    totals_.assign(experiment_.estimators.size(), {});
  }

  // The learned optimizer with every option written out.
  Config LearnedOptimizerConfig() const {
    return Config::FromJson(resolved_.json().at("learned_optimizer"), "learned_optimizer");
  }

  // Brings the state and the output directory to where the loop begins.
  void Prepare() {
    int64_t keep_metrics_below = -1;
    init_theta_ = options_.init_theta;
    if (options_.resume) {
      lock_.emplace(directory_.path());
      store_.RemoveUnfinished();
      directory_.RemoveUnfinished();
      if (std::optional<Checkpoint> checkpoint = store_.ReadNewest()) {
        GoOnFrom(std::move(*checkpoint));
      } else {
        spdlog::info("{} holds no checkpoint yet: starting from the beginning", directory_.path());
        init_theta_ = directory_.ReadManifest().init_theta;
        StartFresh(init_theta_);
      }
      keep_metrics_below = learner_.outer_step;
    } else {
      StartFresh(init_theta_);
      directory_.Create();
      lock_.emplace(directory_.path());
      if (options_.overwrite) {
        directory_.RemoveRun();
      }
    }
    WriteManifest("running");
    directory_.WriteConfig(resolved_);
    metrics_.emplace(directory_.path(), keep_metrics_below);
    if (saved_step_ < 0) {
      Save();
    }
  }

  void GoOnFrom(Checkpoint checkpoint) {
    const std::string path = store_.Path(checkpoint.learner.outer_step);
    const std::vector<std::string> differences =
        checkpoint.config.Differences(resolved_, KeysFreeOnResume(), "in the checkpoint", "now");
    Require(differences.empty(),
            "cannot resume from {}: the config has changed: {}. On resume only these keys may "
            "change: {}",
            path, fmt::join(differences, "; "), fmt::join(KeysFreeOnResume(), ", "));
    if (checkpoint.isa != CurrentIsa()) {
      Require(options_.allow_isa_change,
              "cannot resume from {}: it was computed on instruction set {}, this process uses {}, "
              "so the result would have other bits; pin it (isa, --isa), or allow the change",
              path, checkpoint.isa, CurrentIsa());
      spdlog::warn("the instruction set changes from {} to {}: the result has other bits",
                   checkpoint.isa, CurrentIsa());
    }
    Require(checkpoint.learner.outer_step <= config_.meta_steps,
            "cannot resume from {}: it has {} updates, more than meta_steps = {}", path,
            checkpoint.learner.outer_step, config_.meta_steps);
    Require(checkpoint.workers.size() == experiment_.worker_keys.size() &&
                checkpoint.totals.size() == experiment_.estimators.size(),
            "cannot resume from {}: it holds {} workers of {} estimators, the config has {} of {}",
            path, checkpoint.workers.size(), checkpoint.totals.size(),
            experiment_.worker_keys.size(), experiment_.estimators.size());
    learner_ = std::move(checkpoint.learner);
    workers_ = std::move(checkpoint.workers);
    totals_ = std::move(checkpoint.totals);
    saved_step_ = learner_.outer_step;
    init_theta_ = directory_.ReadManifest().init_theta;
    spdlog::info("resuming from {}", path);
  }

  void WriteManifest(std::string status, std::string error = "") const {
    directory_.WriteManifest({.status = std::move(status),
                              .error = std::move(error),
                              .version = options_.version,
                              .isa = CurrentIsa(),
                              .init_theta = init_theta_,
                              .seed = config_.seed,
                              .threads = options_.threads,
                              .updates = learner_.outer_step});
  }

  void Save() {
    metrics_->Flush();
    store_.Write({.config = resolved_,
                  .isa = CurrentIsa(),
                  .run_key = experiment_.run_key,
                  .theta = experiment_.optimizer->theta_layout(),
                  .learner = learner_,
                  .workers = workers_,
                  .totals = totals_});
    saved_step_ = learner_.outer_step;
    saved_at_ = Clock::now();
  }

  bool SaveIsDue() const {
    return (config_.checkpoint_steps > 0 && learner_.outer_step % config_.checkpoint_steps == 0) ||
           (config_.checkpoint_seconds > 0 &&
            SecondsSince(saved_at_) >= config_.checkpoint_seconds);
  }

  bool Stopped() const { return options_.stop != nullptr && *options_.stop; }

  UpdateSummary Update() {
    const GradientLearner& learner = experiment_.learner;
    const std::vector<AggregatedGradient> to_put =
        ComputeWorkers(learner.GetStateForWorker(learner_), experiment_.estimators,
                       config_.windows_per_update, experiment_.worker_keys, workers_);
    UpdateSummary summary;
    learner_ = learner.Update(std::move(learner_), to_put, &summary);
    for (size_t e = 0; e < totals_.size(); ++e) {
      totals_[e] += summary.estimators[e].counts;
    }
    if (summary.skipped && learner_.skipped_updates == 1) {
      spdlog::warn(
          "the gradient of outer step {} is not finite, so theta stays as it is; this and later "
          "ones are counted in the metric skipped_updates",
          summary.outer_step);
    }
    return summary;
  }

  void Report(const UpdateSummary& summary, const MetaTrainResult& result, int64_t inner_steps) {
    if (metrics_ && summary.outer_step % config_.metrics_steps == 0) {
      metrics_->Write(summary.outer_step,
                      MetricsOf(summary, experiment_.estimator_names, learner_, totals_));
    }
    Event(fmt::format("step:{}", learner_.outer_step));
    if (options_.on_step) {
      options_.on_step({.updates = learner_.outer_step,
                        .first_updates = learner_.outer_step - result.updates,
                        .meta_steps = config_.meta_steps,
                        .seconds = result.seconds,
                        .inner_steps = inner_steps,
                        .summary = &summary,
                        .estimator_names = &experiment_.estimator_names});
    }
  }

  MetaTrainResult Loop() {
    MetaTrainResult result;
    result.last.outer_step = -1;
    int64_t inner_steps = 0;
    const Clock::time_point start = Clock::now();
    while (learner_.outer_step < config_.meta_steps && !Stopped()) {
      result.last = Update();
      ++result.updates;
      inner_steps += result.last.counts.inner_steps;
      result.seconds = SecondsSince(start);
      Report(result.last, result, inner_steps);
      if (Writes() && SaveIsDue()) {
        Save();
      }
    }
    result.interrupted = learner_.outer_step < config_.meta_steps;
    if (Writes()) {
      Finish(&result);
    }
    result.learner = learner_;
    result.estimator_names = experiment_.estimator_names;
    result.totals = totals_;
    return result;
  }

  void Finish(MetaTrainResult* result) {
    metrics_->Flush();
    if (saved_step_ != learner_.outer_step) {
      Save();
    }
    if (!result->interrupted) {
      Event("theta");
      WriteThetaFile(directory_.ThetaPath(), {.learned_optimizer = LearnedOptimizerConfig(),
                                              .theta = learner_.theta,
                                              .config = resolved_,
                                              .seed = config_.seed,
                                              .meta_steps = learner_.outer_step,
                                              .version = options_.version});
      result->theta_path = directory_.ThetaPath();
    }
    Event("finish");
    WriteManifest(result->interrupted ? "interrupted" : "finished");
  }

  MetaTrainConfig config_;
  MetaTrainerOptions options_;
  Config resolved_;
  Experiment experiment_;
  RunDirectory directory_;
  std::optional<RunLock> lock_;
  CheckpointStore store_;
  std::optional<MetricsLog> metrics_;
  std::string init_theta_;

  LearnerState learner_;
  std::vector<WorkerState> workers_;
  std::vector<StepCounts> totals_;
  int64_t saved_step_ = -1;  // outer step of the newest checkpoint
  Clock::time_point saved_at_ = Clock::now();
};

void CheckOptions(const MetaTrainConfig& config, const MetaTrainerOptions& options) {
  Require(!config.estimators.empty(), "estimators: must name at least one estimator");
  Require(!(options.resume && options.overwrite), "resume and overwrite exclude each other");
  Require(!options.out_dir.empty() || !(options.resume || options.overwrite),
          "resume and overwrite need an output directory");
  Require(!options.resume || options.init_theta.empty(),
          "init_theta is for a new run; a resumed one goes on with the theta of its checkpoint");
  if (options.out_dir.empty()) {
    return;
  }
  const bool holds_run = RunDirectory(options.out_dir).HoldsRun();
  Require(!options.resume || holds_run, "cannot resume: {} holds no run", options.out_dir);
  Require(!holds_run || options.resume || options.overwrite,
          "{} holds a run already: resume it (--resume), replace it (--overwrite), or choose "
          "another directory",
          options.out_dir);
}

}  // namespace

MetaTrainResult RunMetaTraining(const MetaTrainConfig& config, const MetaTrainerOptions& options) {
  CheckOptions(config, options);
  if (!config.isa.empty()) {
    PinIsa(config.isa);
  }
  ThreadPool pool(options.threads);
  MetaTrainResult result;
  pool.Run([&] { result = Trainer(config, options).Run(); });
  return result;
}

Metrics MetricsOf(const UpdateSummary& summary, const std::vector<std::string>& estimator_names,
                  const LearnerState& learner, const std::vector<StepCounts>& totals) {
  Metrics metrics = {{"meta_loss", summary.mean_loss},
                     {"gradient_norm", summary.gradient_norm},
                     {"learning_rate", summary.learning_rate},
                     {"skipped_updates", static_cast<double>(learner.skipped_updates)}};
  for (size_t e = 0; e < estimator_names.size(); ++e) {
    const EstimatorReport& report = summary.estimators[e];
    const auto set = [&](std::string_view name, double value) {
      metrics[fmt::format("{}/{}", name, estimator_names[e])] = value;
    };
    set("meta_loss", report.mean_loss);
    set("gradient_norm", report.gradient_norm);
    set("inner_steps", static_cast<double>(totals[e].inner_steps));
    set("non_finite", static_cast<double>(totals[e].non_finite));
    set("episodes_ended", static_cast<double>(totals[e].episodes_ended));
    for (const auto& [name, value] : report.metrics) {
      set(name, value);
    }
  }
  return metrics;
}

}  // namespace lopt
