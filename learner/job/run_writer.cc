#include "lopt/learner/job/run_writer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "lopt/base/environment.h"
#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/output_directory.h"
#include "lopt/learner/run/checkpoint_files.h"
#include "lopt/learner/run/resume_checks.h"
#include "lopt/learner/run/run_end.h"
#include "lopt/learner/run/task_graphs.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/data/data_checksums.h"

namespace lopt {

using Clock = SteadyClock;

RunWriter::RunWriter(const Experiment& experiment, const MetaTrainerOptions& options,
                     Background* background)
    : experiment_(experiment),
      config_(experiment.config),
      options_(options),
      background_(background),
      directory_(options.out_dir, RunKind::kMetaTraining),
      store_(directory_.CheckpointPath(),
             {.keep_last = config_.keep_last, .keep_every = config_.keep_every}, options.on_event) {
}

void RunWriter::Create() {
  directory_.Create();
  lock_.emplace(directory_.path());
  if (options_.overwrite) {
    directory_.RemoveRun();
  } else {
    directory_.RequireNoRun();
    directory_.RemoveUnfinished();  // of a process that was killed before the run had begun
  }
}

void RunWriter::Event(const char* what) const {
  if (options_.on_event) {
    options_.on_event(what);
  }
}

std::optional<Checkpoint> RunWriter::Resume() {
  Event("resume");
  lock_.emplace(directory_.path());
  store_.Settle();
  Writable(directory_).RemoveUnfinished();
  constexpr WorkerStates kWindows = WorkerStates::kWindows;
  std::optional<Checkpoint> checkpoint =
      options_.from ? store_.Read(*options_.from, kWindows) : store_.ReadNewest(kWindows);
  if (!checkpoint) {
    RequireNoCheckpointLost(directory_);
    spdlog::info("{} holds no checkpoint yet: starting from the beginning", directory_.path());
    return std::nullopt;
  }
  CheckFits(*checkpoint);
  saved_step_ = checkpoint->learner.outer_step;
  spdlog::info("resuming from {}", store_.Path(saved_step_));
  return checkpoint;
}

// What the run made after a step, but what Open takes back. A crash of the machine may not bring it
// back once the run has gone on.
void RunWriter::RemoveAfter(int64_t step) {
  Writable(store_).RemoveAfter(step);
  RemoveMatching(Writable(directory_).path(),
                 [](std::string_view name) { return name == RunDirectory::kTheta; });
  SyncDirectory(directory_.path());
}

void RunWriter::RequireLock() {
  try {
    lock_->RequireNotSilent();
  } catch (const Error&) {
    if (metrics_) metrics_->Drop();
    throw;
  }
}

void RunWriter::WriteMetrics(int64_t step, const Metrics& metrics) {
  Writable(*metrics_).Write(step, metrics);
}

void RunWriter::WritePictures(int64_t step, const std::map<std::string, Pictures>& pictures) {
  Writable(*metrics_).WritePictures(step, pictures);
}

void RunWriter::NoteThroughput(int64_t updates, int64_t inner_steps) {
  Writable(*throughput_).Note(updates, inner_steps);
}

void RunWriter::FinishThroughput() { Writable(*throughput_).Finish(); }

std::optional<std::string> RunWriter::HeldOutData() const {
  if (config_.eval_every == 0) return std::nullopt;
  return experiment_.resources.DataChecksums();
}

bool RunWriter::SameEvalTasks(const Checkpoint& checkpoint) const {
  const std::string path = store_.Path(checkpoint.learner.outer_step);
  const Config then = ResolvedAgain<MetaTrainConfig>(path, checkpoint.config);
  return then.json().at("eval_tasks") == experiment_.resolved.json().at("eval_tasks");
}

void RunWriter::CheckFits(const Checkpoint& checkpoint) const {
  const std::string path = store_.Path(checkpoint.learner.outer_step);
  RequireSameConfig(path, ResolvedAgain<MetaTrainConfig>(path, checkpoint.config),
                    experiment_.resolved, KeysFreeOnResume());
  RequireSameIsa(path, checkpoint.isa, options_.allow_isa_change);
  RequireSameData("from " + path, checkpoint.data, experiment_.data);
  // Losses on other data would not compare. Other held-out tasks are chosen by other losses anyway.
  if (const auto data = HeldOutData(); data && SameEvalTasks(checkpoint)) {
    RequireSameData("from " + path, checkpoint.held_out_data, *data);
  }
  if (!device_.empty()) {
    RequireSameDevice(path, checkpoint.device, device_, options_.allow_isa_change);
  }
  Require(checkpoint.learner.outer_step <= config_.meta_steps,
          "cannot resume from {}: it has {} updates, more than meta_steps = {}", path,
          checkpoint.learner.outer_step, config_.meta_steps);
  const auto workers = static_cast<int64_t>(experiment_.workers.size());
  const auto estimators = static_cast<int64_t>(experiment_.estimators.size());
  Require(
      std::ssize(checkpoint.workers) == workers && std::ssize(checkpoint.totals) == estimators &&
          checkpoint.ledger.workers() == workers && checkpoint.ledger.estimators() == estimators,
      "cannot resume from {}: it holds {} workers of {} estimators, the config has {} of {}", path,
      checkpoint.workers.size(), checkpoint.totals.size(), workers, estimators);
}

void RunWriter::Open(const std::optional<Checkpoint>& checkpoint, std::span<const int64_t> windows,
                     RunState* state) {
  if (checkpoint && options_.from) {
    // A run that had finished has not, once something of it is gone.
    WriteManifest(RunManifest::kRunning, saved_step_);
    RemoveAfter(saved_step_);
  }
  const LogState logs = checkpoint ? checkpoint->logs : LogState();
  if (checkpoint && SameEvalTasks(*checkpoint)) {
    earlier_held_out_data_ = checkpoint->held_out_data;
  }
  journal_.emplace(Writable(directory_).JournalPath());
  journal_->GoOnFrom(checkpoint ? checkpoint->journal_position : 0, windows, &state->ledger);
  const int64_t step = state->learner.outer_step;
  WriteManifest(saved_step_ < 0 ? "starting" : RunManifest::kRunning, step);
  Writable(directory_).WriteConfig(experiment_.resolved);
  if (options_.resume) {
    CutLogs(Writable(directory_).path(), logs);
    RemoveBestThetaAfter(Writable(directory_).path(), saved_step_);
  }
  metrics_.emplace(Writable(directory_).path());
  if (!checkpoint) WriteGraphs();
  if (config_.eval_every > 0) {
    best_.emplace(Writable(directory_).path(),
                  HeldOutOf(ReadOptions<MetaTrainConfig>(experiment_.resolved)));
  }
  throughput_.emplace(directory_.path(), step, logs.seconds);
  // Checkpoints count on the logs, whose names are new.
  SyncDirectory(directory_.path());
}

void RunWriter::WriteGraphs() {
  std::vector<std::pair<std::string, Config>> named;
  for (size_t e = 0; e < config_.estimators.size(); ++e) {
    named.emplace_back(experiment_.estimator_names[e], config_.estimators[e]);
  }
  metrics_->WriteGraph(TaskGraphs(named, experiment_.resources));
}

void RunWriter::WriteManifest(std::string status, int64_t updates,
                              std::optional<std::string> error) {
  Writable(directory_)
      .WriteManifest({.status = std::move(status),
                      .error = std::move(error),
                      .version = options_.version,
                      .isa = CurrentIsa(),
                      .device = device_.empty() || device_ == ModelOf(nullptr)
                                    ? std::nullopt
                                    : std::optional(device_),
                      .seed = config_.seed,
                      .threads = options_.threads,
                      .updates = updates});
}

void RunWriter::WriteTheta(const std::string& path, const LearnerState& learner,
                           const std::string& chosen_on) const {
  ThetaFile file = experiment_.ThetaOf(learner, options_.version);
  file.chosen_on = chosen_on;
  WriteThetaFile(path, file);
}

void RunWriter::CheckTheta(const std::string& path) const {
  try {
    for (const GoldenDeviation& deviation : CheckThetaFile(path)) {
      if (!deviation.within) {
        spdlog::warn("{}: {}", path, deviation.Describe());
      }
    }
  } catch (const Error& error) {
    spdlog::warn("the theta that was written cannot be read again: {}", error.what());
  }
}

void RunWriter::OfferBest(const LearnerState& learner, double loss) {
  Writable(*best_).Offer(learner.outer_step, loss, [&](const std::string& path) {
    WriteTheta(path, learner, std::string(ToString(kHeldOutSplit)));
  });
}

bool RunWriter::SaveIsDue(int64_t step) const {
  const std::chrono::duration<double> since_save = Clock::now() - saved_at_;
  return !saving() && config_.CheckpointIsDue(step, saved_step_, since_save.count());
}

void RunWriter::Save(const RunState& state, const Updates& updates, Ranks* ranks) {
  Writable(*metrics_).Flush();
  const int64_t step = state.learner.outer_step;
  device_ = ranks->device();
  saving_ = std::make_shared<Checkpoint>(Checkpoint{
      .config = experiment_.resolved,
      .isa = CurrentIsa(),
      .device = device_,
      .data = experiment_.data,
      .held_out_data = config_.eval_every > 0 ? HeldOutData() : earlier_held_out_data_,
      .run_key = experiment_.run_key,
      .theta = experiment_.optimizer->theta_layout(),
      .learner = state.learner,
      .workers = {},
      .totals = state.totals,
      .ledger = state.ledger,
      .journal_position = journal_->position(),
      .logs = {.seconds = throughput_->seconds(), .bytes = LogBytes(directory_.path())}});
  journal_positions_[step] = journal_->position();
  updates.AccountUnused(&saving_->ledger);
  ranks->Collect(
      {.what = config_.gather_checkpoints ? SaveRequest::What::kSend : SaveRequest::What::kWrite,
       .outer_step = step,
       .directory = Writable(store_).Begin(step)},
      {.before =
           [this](const WorkerGradient& gradient) {
             saving_->ledger.Account(Outcome::kLost, WindowsOf(gradient), gradient.gradient);
           },
       .use = [this](std::vector<SavedFile> saved) { Commit(saving_, std::move(saved)); }});
}

void RunWriter::Commit(const std::shared_ptr<const Checkpoint>& checkpoint,
                       std::vector<SavedFile> saved) {
  const int64_t step = checkpoint->learner.outer_step;
  background_->Post(
      [this, step, checkpoint, saved = std::move(saved)] {
        lock_->RequireHeld();
        try {
          SyncLogs(directory_.path(), checkpoint->logs);
          journal_->Sync();
          std::vector<CheckpointFile> files;
          for (const auto& [file, bytes] : saved) {
            files.push_back(config_.gather_checkpoints
                                ? WriteCheckpointFile(store_.TemporaryPath(step), file.name, bytes)
                                : file);
          }
          store_.Commit(*checkpoint, files);
        } catch (...) {
          lock_->RequireHeld();  // or who took it has cleared away what was written
          store_.Discard(step);
          throw;
        }
      },
      [this, step] {
        RequireLock();
        if (saved_step_ < 0) {
          WriteManifest(RunManifest::kRunning, step);
        }
        saved_step_ = step;
        saved_at_ = Clock::now();
        saving_.reset();
        ForgetOldWindows();
      });
}

// The journal reaches back to the oldest checkpoint.
void RunWriter::ForgetOldWindows() {
  const std::vector<int64_t> steps = store_.Steps();
  std::erase_if(journal_positions_,
                [&](const auto& entry) { return !std::ranges::binary_search(steps, entry.first); });
  if (journal_positions_.size() == steps.size()) {
    Writable(*journal_).ForgetBefore(journal_positions_.begin()->second);
  }
}

std::string RunWriter::Finish(const LearnerState& learner, bool interrupted) {
  lock_->RequireHeld();
  metrics_->Flush();
  SyncLogs(directory_.path(), {.bytes = LogBytes(directory_.path())});
  std::string path;
  if (!interrupted) {
    Event("theta");
    path = Writable(directory_).ThetaPath();
    WriteTheta(path, learner);
    CheckTheta(path);
  }
  lock_->RequireHeld();
  Event("finish");
  WriteManifest(interrupted ? "interrupted" : "finished", learner.outer_step);
  return path;
}

void RunWriter::Fail(const std::string& error, int64_t updates) { End("failed", updates, error); }

void RunWriter::Stop() { End("interrupted", std::max<int64_t>(saved_step_, 0)); }

void RunWriter::End(const std::string& status, int64_t updates,
                    const std::optional<std::string>& error) {
  if (!journal_) return;  // the directory was not opened; it may hold another's run
  const auto write = [&] {
    if (saving_) {
      // If its files are written just now, they are all there or not at all.
      background_->Settle();
      store_.Discard(saving_->learner.outer_step);
    }
    WriteManifest(status, updates, error);
  };
  WriteRunEnd(*lock_, error, write, &metrics_);
}

}  // namespace lopt
