#include "lopt/learner/job/learner_role.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "lopt/base/environment.h"
#include "lopt/base/option_words.h"
#include "lopt/learner/job/async_updates.h"
#include "lopt/learner/job/await_background.h"
#include "lopt/learner/job/sync_updates.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/run/resume_checks.h"
#include "lopt/learner/run/status_file.h"
#include "lopt/learner/run/update_metrics.h"
#include "lopt/lopt/theta_file.h"

namespace lopt {

using Clock = SteadyClock;

LearnerRole::LearnerRole(const Experiment* experiment, const MetaTrainerOptions& options,
                         Ranks* ranks, MessageLoop* loop, Background* background, Background* files)
    : experiment_(experiment),
      options_(options),
      ranks_(ranks),
      loop_(loop),
      background_(background),
      reproducible_(WhyNotReproducible(experiment->mode).empty()),
      state_{.learner = {},
             .totals = std::vector<StepCounts>(experiment->estimators.size()),
             .ledger = Ledger(experiment->config.workers, std::ssize(experiment->estimators))} {
  if (const auto* sync = std::get_if<SyncOptions>(&experiment->mode)) {
    updates_ = std::make_unique<SyncUpdates>(*sync, experiment->config.workers,
                                             &experiment->learner, &state_, loop, options.threads);
  } else {
    updates_ = std::make_unique<AsyncUpdates>(
        std::get<AsyncOptions>(experiment->mode), &experiment->learner, &state_, loop,
        [this] { return StopAsked(); }, options.threads);
  }
  ranks->GiveGradientsTo(updates_.get());
  if (!options.out_dir.empty()) {
    writer_.emplace(*experiment, options, files);
  }
}

bool LearnerRole::StopAsked() const {
  return ranks_->stop_asked() || (options_.stop != nullptr && *options_.stop);
}

void LearnerRole::InBackground(const std::function<void()>& work) {
  AwaitBackground(background_, loop_, work);
}

MetaTrainResult LearnerRole::Run() {
  if (!reproducible_) {
    spdlog::info("{}", WhyNotReproducible(experiment_->mode));
  }
  if (experiment_->config.eval_every > 0) {
    InBackground([this] {
      held_out_.emplace(experiment_->optimizer, experiment_->resources,
                        HeldOutOf(experiment_->config));
      experiment_->RequireDataDirUsed();
    });
  }
  try {
    Begin();
    return Loop();
  } catch (const StoppedAlone&) {
    if (writer_) {
      writer_->Stop();
    }
    throw;
  } catch (const std::exception& error) {
    if (writer_) {
      writer_->Fail(error.what(), state_.learner.outer_step);
    }
    throw;
  }
}

// Brings the state and the output directory to where the loop begins.
void LearnerRole::Begin() {
  if (!writer_) {
    state_.learner = InitialState();
    ranks_->Begin(experiment_->learner.GetStateForWorker(state_.learner));
    return;
  }
  std::optional<Checkpoint> checkpoint;
  writer_->KnowDevice(ranks_->device());
  if (options_.resume) {
    const bool device_known = !ranks_->device().empty();
    InBackground([&] { checkpoint = writer_->Resume(); });
    if (checkpoint && !device_known) AgreeOnDevice(*checkpoint);
  }
  std::vector<int64_t> windows(static_cast<size_t>(experiment_->config.workers));
  if (checkpoint) {
    state_ = {
        .learner = checkpoint->learner, .totals = checkpoint->totals, .ledger = checkpoint->ledger};
    std::ranges::transform(checkpoint->workers, windows.begin(), &WorkerState::windows);
  } else {
    state_.learner = InitialState();
    if (!options_.resume) {
      writer_->Create();
    }
  }
  // Before any rank reports: what is wrong with the files no restart can help.
  InBackground([&] { writer_->Open(checkpoint, windows, &state_); });
  loop_->SetUpdates(state_.learner.outer_step);
  loop_->WriteStatusTo(StatusPath(options_.out_dir, 0));
  if (checkpoint) {
    const bool send = experiment_->config.gather_checkpoints;
    if (send) {
      SendStates();
    }
    ranks_->GoOn(send ? "" : writer_->newest(), windows);
  } else {
    ranks_->Begin(experiment_->learner.GetStateForWorker(state_.learner));
  }
  ranks_->NoteWindowsIn(writer_->journal(), [this] { writer_->RequireLock(); });
}

// Workers that come to a run that goes on are to be like those before. Some may have come while its
// checkpoint was read.
void LearnerRole::AgreeOnDevice(const Checkpoint& checkpoint) {
  if (!options_.allow_isa_change) {
    ranks_->ExpectDevice(checkpoint.device);
    RequireSameDevice(writer_->newest(), checkpoint.device, ranks_->device(), false);
  }
  writer_->KnowDevice(ranks_->device());
}

void LearnerRole::SendStates() {
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    const WorkerBlock& block = ranks_->block(rank);
    std::vector<WorkerState> states;
    InBackground([&] {
      states =
          ReadWorkers(writer_->newest(), block.first, block.count, experiment_->estimators.size());
    });
    ranks_->SendStates(rank, states);
  }
}

// The state before the first update.
LearnerState LearnerRole::InitialState() const {
  const GradientLearner& learner = experiment_->learner;
  const std::string& init_theta = experiment_->config.init_theta;
  return init_theta.empty()
             ? learner.Init(ThetaKey(experiment_->run_key))
             : learner.Init(ReadThetaFile(init_theta, experiment_->LearnedOptimizerConfig()).theta);
}

MetaTrainResult LearnerRole::Loop() {
  const int64_t meta_steps = experiment_->config.meta_steps;
  const int64_t& step = state_.learner.outer_step;
  MetaTrainResult result;
  result.last.outer_step = -1;
  int64_t inner_steps = 0;
  WarnOfEndedSchedule();
  if (writer_ && !writer_->Saved(step)) {
    Save();
    AwaitSave();
  }
  const Clock::time_point start = Clock::now();
  while (step < meta_steps && !StopAsked()) {
    ranks_->HandOut(experiment_->learner.GetStateForWorker(state_.learner));
    EvaluateTheta();
    const std::optional<UpdateSummary> summary = updates_->Make();
    if (!summary) {
      break;
    }
    result.last = *summary;
    ++result.updates;
    inner_steps += result.last.counts.inner_steps;
    result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    Report(result.last, result, inner_steps);
    if (writer_ && writer_->SaveIsDue(step) && step < meta_steps) {
      Save();
    }
  }
  result.interrupted = step < meta_steps;
  ranks_->Rest();
  if (!result.interrupted) {
    EvaluateTheta();
  }
  loop_->SetUpdates(step);
  Finish(&result);
  result.learner = state_.learner;
  result.theta = experiment_->ThetaOf(state_.learner, options_.version);
  result.estimator_names = experiment_->estimator_names;
  result.totals = state_.totals;
  result.ledger = state_.ledger;
  return result;
}

void LearnerRole::EvaluateTheta() {
  const int64_t every = experiment_->config.eval_every;
  if (every == 0 || state_.learner.outer_step % every != 0) {
    return;
  }
  InBackground([this] {
    evaluation_ = held_out_->Evaluate(experiment_->learner.EvalTheta(state_.learner));
  });
  if (writer_) {
    writer_->OfferBest(state_.learner, evaluation_.loss);
  }
}

Metrics LearnerRole::TakeEvaluation(int64_t step) {
  HeldOutResult taken = std::exchange(evaluation_, {});
  if (writer_ && !taken.pictures.empty()) {
    writer_->WritePictures(step, taken.pictures);
  }
  return std::move(taken.metrics);
}

void LearnerRole::WarnOfEndedSchedule() const {
  const int64_t meta_steps = experiment_->config.meta_steps;
  if (state_.learner.outer_step >= meta_steps) {
    return;
  }
  if (const auto end = experiment_->learner.EndOfSchedule(state_.learner, meta_steps)) {
    spdlog::warn(
        "theta_opt's schedule has ended after {} updates, with a learning rate of 0: further ones "
        "change nothing. To train on, begin a new run from this theta ({})",
        *end, KeyWords("init_theta"));
  }
}

void LearnerRole::WriteMetrics(int64_t step, const Metrics& metrics) {
  if (writer_) {
    writer_->WriteMetrics(step, metrics);
  }
  if (options_.on_metrics) {
    options_.on_metrics(step, metrics);
  }
}

void LearnerRole::Report(const UpdateSummary& summary, const MetaTrainResult& result,
                         int64_t inner_steps) {
  const std::vector<std::string>& names = experiment_->estimator_names;
  const int64_t updates = state_.learner.outer_step;
  Metrics metrics = TakeEvaluation(summary.outer_step);
  if (writer_ || options_.on_metrics) {
    if (summary.outer_step % experiment_->config.metrics_steps == 0) {
      metrics.merge(MetricsOf(summary, names, state_.learner, state_.totals));
      AddLedgerMetrics(state_.ledger, names, experiment_->config.worker_metrics, &metrics);
      updates_->AddMetrics(&metrics);
    }
    if (!metrics.empty()) {
      WriteMetrics(summary.outer_step, metrics);
    }
  }
  if (writer_) {
    writer_->NoteThroughput(updates, inner_steps);
  }
  if (options_.on_event) {
    options_.on_event(fmt::format("step:{}", updates));
  }
  if (options_.on_step) {
    options_.on_step({.updates = updates,
                      .first_updates = updates - result.updates,
                      .meta_steps = experiment_->config.meta_steps,
                      .seconds = result.seconds,
                      .inner_steps = inner_steps,
                      .summary = &summary,
                      .estimator_names = &names});
  }
}

// A run with the same bits has checkpoints of the same steps, too; others go on meanwhile.
void LearnerRole::Save() {
  writer_->Save(state_, *updates_, ranks_);
  if (reproducible_) {
    AwaitSave();
  }
}

void LearnerRole::AwaitSave() {
  loop_->RunUntil([this] { return !writer_->saving(); });
}

void LearnerRole::Finish(MetaTrainResult* result) {
  const int64_t step = state_.learner.outer_step;
  if (writer_) {
    writer_->FinishThroughput();
    AwaitSave();
  }
  if (!reproducible_) {
    bool all_rest = false;
    ranks_->Collect({.what = SaveRequest::What::kNothing},
                    {.use = [&](const auto&) { all_rest = true; }});
    loop_->RunUntil([&] { return all_rest; });
  }
  if (writer_ && !writer_->Saved(step)) {
    Save();
    AwaitSave();
  }
  updates_->AccountUnused(&state_.ledger);
  // After the checkpoint: a run that goes on from it judges this theta again.
  if (!result->interrupted) {
    if (const Metrics metrics = TakeEvaluation(step); !metrics.empty()) {
      WriteMetrics(step, metrics);
    }
  }
  if (writer_) {
    result->theta_path = writer_->Finish(state_.learner, result->interrupted);
  }
  ranks_->End(result->interrupted ? "interrupted" : "finished");
}

}  // namespace lopt
