#include "learner/job/learner_role.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/isa.h"
#include "learner/run/status_file.h"
#include "learner/run/update_metrics.h"
#include "lopt/theta_file.h"

namespace lopt {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

WorkerWindows WindowsOf(const WorkerGradient& gradient) {
  return {.worker = gradient.worker, .first = gradient.first_window, .windows = gradient.windows};
}

// What eval_every and the keys after it say.
HeldOutOptions HeldOutOf(const MetaTrainConfig& config) {
  HeldOutOptions options = {
      .tasks = config.eval_tasks, .steps = config.eval_steps, .seeds = config.eval_seeds};
  if (options.tasks.empty()) {
    for (const Config& estimator : config.estimators) {
      const auto task = estimator.json().find("task");
      Require(
          task != estimator.json().end(),
          "eval_tasks is empty and the estimator {} has no task to evaluate theta on; name some",
          estimator.Type());
      options.tasks.push_back(Config::FromJson(*task, estimator.path() + ".task"));
    }
  }
  return options;
}

}  // namespace

LearnerRole::LearnerRole(const MetaTrainConfig& config, const MetaTrainerOptions& options,
                         const Experiment* const* experiment, Transport* transport,
                         MessageLoop* loop, Background* background)
    : config_(config),
      options_(options),
      resolved_(WriteOptions("", config)),
      experiment_(experiment),
      transport_(transport),
      loop_(loop),
      background_(background),
      directory_(options.out_dir),
      store_(directory_.CheckpointPath(),
             {.keep_last = config.keep_last, .keep_every = config.keep_every}, options.on_event),
      ranks_(static_cast<size_t>(transport->size())),
      windows_(static_cast<size_t>(config.workers)),
      arrived_(static_cast<size_t>(config.workers)),
      absent_before_(static_cast<size_t>(config.workers)) {
  for (int rank = 0; rank < transport->size(); ++rank) {
    ranks_[static_cast<size_t>(rank)].block =
        WorkersOfRank(config.workers, rank, transport->size(), options.learner_only);
  }
  if (Async()) {
    buffer_.emplace(config.batch_size, config.staleness, config.staleness_policy == "discount");
  }
}

void LearnerRole::Event(std::string_view what) const {
  if (options_.on_event) {
    options_.on_event(what);
  }
}

std::string LearnerRole::NameOf(int rank) const {
  const std::optional<Hello>& hello = ranks_[static_cast<size_t>(rank)].hello;
  return fmt::format("rank {} ({})", rank, hello ? hello->host : "host unknown");
}

void LearnerRole::Broadcast(int kind, const std::vector<std::byte>& bytes) {
  for (int rank = 0; rank < transport_->size(); ++rank) {
    transport_->Send(rank, kind, bytes);
  }
}

void LearnerRole::Handle(Message message) {
  Rank& rank = ranks_[static_cast<size_t>(message.from)];
  switch (message.kind) {
    case kHello:
      rank.hello = FromWire<Hello>(message.bytes);
      break;
    case kReady:
      rank.ready = true;
      break;
    case kGradients:
      TakeGradients(message.from, FromWire<std::vector<WorkerGradient>>(message.bytes));
      break;
    case kSaved:
      rank.saved = FromWire<std::vector<SavedWorker>>(message.bytes);
      break;
    case kStop:
      stop_asked_ = true;
      break;
    case kFailure: {
      const std::string text = FromWire<std::string>(message.bytes);
      if (transport_->size() == 1) {
        throw Error(text);
      }
      Fail("{}: {}", NameOf(message.from), text);
    }
    default:
      Fail("the learner got a message of kind {}, which is not for it", message.kind);
  }
}

MetaTrainResult LearnerRole::Run() {
  try {
    loop_->RunUntil([&] {
      return std::all_of(ranks_.begin(), ranks_.end(),
                         [](const Rank& rank) { return rank.hello.has_value(); });
    });
    CompareRanks();
    loop_->RunUntil([&] { return *experiment_ != nullptr; });
    ReportPlacement();
    if (config_.eval_every > 0) {
      InBackground([this] {
        held_out_.emplace((*experiment_)->optimizer, (*experiment_)->resources, HeldOutOf(config_));
      });
    }
    ledger_ = Ledger(config_.workers, static_cast<int64_t>(config_.estimators.size()));
    if (!Writes()) {
      StartFresh(options_.init_theta);
      return Loop();
    }
    Prepare();
  } catch (...) {
    Broadcast(kEnd, ToWire(std::string("failed")));
    throw;
  }
  try {
    return Loop();
  } catch (const std::exception& error) {
    // The cause matters more than a manifest that cannot be written.
    try {
      WriteManifest("failed", error.what());
    } catch (const Error& second) {
      spdlog::error("{}", second.what());
    }
    Broadcast(kEnd, ToWire(std::string("failed")));
    throw;
  }
}

void LearnerRole::CompareRanks() {
  const Hello& mine = *ranks_[0].hello;
  for (int rank = 1; rank < transport_->size(); ++rank) {
    const Hello& other = *ranks_[static_cast<size_t>(rank)].hello;
    Require(other.version == mine.version,
            "{} runs version '{}' of the program, rank 0 ({}) version '{}'", NameOf(rank),
            other.version, mine.host, mine.version);
    if (other.config != mine.config) {
      const auto differences = Config::Parse(mine.config, "rank 0")
                                   .Differences(Config::Parse(other.config, "another rank"), {},
                                                "on rank 0", fmt::format("on rank {}", rank));
      Fail("{} has another config than rank 0 ({}): {}", NameOf(rank), mine.host,
           fmt::join(differences, "; "));
    }
    if (other.isa != mine.isa) {
      Require(
          options_.allow_isa_change,
          "{} computes with instruction set {}, rank 0 ({}) with {}, so the result would depend "
          "on who computes what; pin it (isa, --isa), or allow the difference "
          "(--allow-isa-change)",
          NameOf(rank), other.isa, mine.host, mine.isa);
      spdlog::warn("{} computes with instruction set {}, rank 0 with {}", NameOf(rank), other.isa,
                   mine.isa);
    }
  }
}

void LearnerRole::ReportPlacement() const {
  if (transport_->size() > 1) {
    spdlog::info("{}: {} workers, learner on {}", transport_->Description(), config_.workers,
                 NameOf(0));
  }
  std::vector<int> idle;
  for (int rank = options_.learner_only ? 1 : 0; rank < transport_->size(); ++rank) {
    if (ranks_[static_cast<size_t>(rank)].block.count == 0) {
      idle.push_back(rank);
    }
  }
  if (!idle.empty()) {
    spdlog::warn("workers is {}, so these ranks have none and stay idle: {}", config_.workers,
                 fmt::join(idle, ", "));
  }
  if (Async()) {
    spdlog::info("mode async: the result depends on timing, so it is not reproducible bit for bit");
  }
  if (HasDeadline()) {
    spdlog::info(
        "deadline_seconds is {}: updates may go ahead without late workers, so the result is not "
        "reproducible bit for bit",
        config_.deadline_seconds);
  }
}

// Sets the state to that before the first update.
void LearnerRole::StartFresh(const std::string& init_theta) {
  const GradientLearner& learner = (*experiment_)->learner;
  learner_ = init_theta.empty()
                 ? learner.Init(ThetaKey((*experiment_)->run_key))
                 : learner.Init(ReadThetaFile(init_theta, LearnedOptimizerConfig()).theta);
  Broadcast(kBegin, ToWire(learner.GetStateForWorker(learner_)));
  loop_->RunUntil([&] {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ready; });
  });
  totals_.assign((*experiment_)->estimators.size(), {});
}

// The learned optimizer with every option written out.
Config LearnerRole::LearnedOptimizerConfig() const {
  return Config::FromJson(resolved_.json().at("learned_optimizer"), "learned_optimizer");
}

// Brings the state and the output directory to where the loop begins.
void LearnerRole::Prepare() {
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
      OpenJournal(0);
    }
    keep_metrics_below = learner_.outer_step;
  } else {
    StartFresh(init_theta_);
    directory_.Create();
    lock_.emplace(directory_.path());
    if (options_.overwrite) {
      directory_.RemoveRun();
    }
    OpenJournal(0);
  }
  loop_->SetUpdates(learner_.outer_step);
  loop_->WriteStatusTo(StatusPath(options_.out_dir, 0));
  WriteManifest("running");
  directory_.WriteConfig(resolved_);
  metrics_.emplace(directory_.path(), keep_metrics_below);
  best_.emplace(directory_.path());
  throughput_.emplace(directory_.path(), learner_.outer_step);
  if (saved_step_ < 0) {
    Save(false);
  }
}

void LearnerRole::GoOnFrom(Checkpoint checkpoint) {
  const Experiment& experiment = **experiment_;
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
  Require(checkpoint.workers.size() == experiment.workers.size() &&
              checkpoint.totals.size() == experiment.estimators.size() &&
              checkpoint.ledger.workers() == ledger_.workers() &&
              checkpoint.ledger.estimators() == ledger_.estimators(),
          "cannot resume from {}: it holds {} workers of {} estimators, the config has {} of {}",
          path, checkpoint.workers.size(), checkpoint.totals.size(), experiment.workers.size(),
          experiment.estimators.size());
  SendStates(checkpoint.workers);
  learner_ = std::move(checkpoint.learner);
  totals_ = std::move(checkpoint.totals);
  ledger_ = std::move(checkpoint.ledger);
  saved_step_ = learner_.outer_step;
  init_theta_ = directory_.ReadManifest().init_theta;
  OpenJournal(checkpoint.journal_position);
  spdlog::info("resuming from {}", path);
}

void LearnerRole::SendStates(const std::vector<WorkerState>& workers) {
  for (int r = 0; r < transport_->size(); ++r) {
    const Rank& rank = ranks_[static_cast<size_t>(r)];
    for (int64_t w = rank.block.first; w < rank.block.first + rank.block.count; ++w) {
      const WorkerState& worker = workers[static_cast<size_t>(w)];
      windows_[static_cast<size_t>(w)] = worker.windows;
      transport_->Send(r, kState,
                       ToWire(WorkerFile{.worker = w, .bytes = SerializeWorker(worker)}));
    }
    transport_->Send(r, kGo, {});
  }
  loop_->RunUntil([&] {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ready; });
  });
}

void LearnerRole::OpenJournal(int64_t position) {
  journal_.emplace(directory_.JournalPath());
  journal_->GoOnFrom(position, windows_, &ledger_);
}

std::span<const int64_t> LearnerRole::WindowsIn(const WorkerBlock& block) const {
  return std::span(windows_).subspan(static_cast<size_t>(block.first),
                                     static_cast<size_t>(block.count));
}

void LearnerRole::WriteManifest(std::string status, std::optional<std::string> error) const {
  directory_.WriteManifest({.status = std::move(status),
                            .error = std::move(error),
                            .version = options_.version,
                            .isa = CurrentIsa(),
                            .init_theta = init_theta_,
                            .seed = config_.seed,
                            .threads = options_.threads,
                            .updates = learner_.outer_step});
}

// A rank that gets weights starts with them at once, unless it computes: then it does when it has
// ended.
void LearnerRole::HandOutWeights() {
  const std::vector<std::byte> bytes = ToWire((*experiment_)->learner.GetStateForWorker(learner_));
  loop_->SetUpdates(learner_.outer_step);
  for (int r = 0; r < transport_->size(); ++r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    if (rank.block.count == 0) {
      continue;
    }
    rank.weights_sent = learner_.outer_step;
    if (rank.computing < 0) {
      NoteStarted(&rank);
    }
    transport_->Send(r, kWeights, bytes);
  }
}

void LearnerRole::NoteStarted(Rank* rank) {
  rank->computing = rank->weights_sent;
  for (int64_t w = rank->block.first; w < rank->block.first + rank->block.count; ++w) {
    windows_[static_cast<size_t>(w)] += config_.windows_per_update;
  }
  if (journal_) {
    journal_->Started(rank->block.first, WindowsIn(rank->block));
  }
}

void LearnerRole::TakeGradients(int from, std::vector<WorkerGradient> gradients) {
  Rank& rank = ranks_[static_cast<size_t>(from)];
  const int64_t step = rank.computing;
  rank.computing = -1;
  if (!last_save_ && (Async() || rank.weights_sent != step)) {
    NoteStarted(&rank);
    if (Async()) {
      transport_->Send(from, kTaken, {});
    }
  }
  for (WorkerGradient& gradient : gradients) {
    if (rank.saved) {
      rank.deferred.push_back(std::move(gradient));
    } else {
      TakeGradient(std::move(gradient));
    }
  }
}

void LearnerRole::TakeGradient(WorkerGradient gradient) {
  Require(gradient.worker >= 0 && gradient.worker < config_.workers,
          "a gradient came from worker {}, there are {}", gradient.worker, config_.workers);
  if (Async()) {
    const WorkerWindows windows = WindowsOf(gradient);
    const AggregatedGradient counts = {.counts = gradient.gradient.counts,
                                       .estimators = gradient.gradient.estimators};
    if (!buffer_->Put(learner_.outer_step, std::move(gradient))) {
      ledger_.Account(Fate::kStale, windows, counts);
    }
    return;
  }
  if (gradient.gradient.outer_step < learner_.outer_step) {
    ledger_.Account(Fate::kLate, WindowsOf(gradient), gradient.gradient);
    return;
  }
  auto& slot = arrived_[static_cast<size_t>(gradient.worker)];
  Require(!slot.has_value(), "worker {} sent two gradients of outer step {}", gradient.worker,
          learner_.outer_step);
  slot = std::move(gradient);
  ++arrived_count_;
}

// Takes messages until the work is done.
void LearnerRole::InBackground(std::function<void()> work) {
  bool done = false;
  background_->Post(std::move(work), [&done] { done = true; });
  loop_->RunUntil([&done] { return done; });
}

void LearnerRole::EvaluateTheta() {
  if (config_.eval_every == 0 || learner_.outer_step % config_.eval_every != 0) {
    return;
  }
  InBackground([this] { evaluation_ = held_out_->Evaluate(learner_.theta); });
  if (best_) {
    best_->Offer(learner_.outer_step, evaluation_.loss,
                 [this](const std::string& path) { WriteTheta(path); });
  }
}

void LearnerRole::WriteTheta(const std::string& path) const {
  WriteThetaFile(path, {.learned_optimizer = LearnedOptimizerConfig(),
                        .theta = learner_.theta,
                        .config = resolved_,
                        .seed = config_.seed,
                        .meta_steps = learner_.outer_step,
                        .version = options_.version});
}

UpdateSummary LearnerRole::SyncUpdate() {
  for (auto& slot : arrived_) {
    slot.reset();
  }
  arrived_count_ = 0;
  const Clock::time_point start = Clock::now();
  HandOutWeights();
  const auto everybody = [&] { return arrived_count_ == config_.workers; };
  if (HasDeadline()) {
    loop_->RunUntil(
        [&] {
          return everybody() || (arrived_count_ >= config_.quorum &&
                                 SecondsSince(start) >= config_.deadline_seconds);
        },
        std::chrono::milliseconds(1));
    ReportAbsent(arrived_count_);
  } else {
    loop_->RunUntil(everybody);
  }
  std::vector<AggregatedGradient> to_put;
  std::vector<WorkerWindows> windows;
  for (auto& slot : arrived_) {
    if (slot) {
      windows.push_back(WindowsOf(*slot));
      to_put.push_back(std::move(slot->gradient));
    }
  }
  UpdateSummary summary;
  learner_ = (*experiment_)->learner.Update(std::move(learner_), to_put, &summary);
  AccountUpdate(summary, windows, to_put);
  return summary;
}

// The first time that a worker is left out, it is named.
void LearnerRole::ReportAbsent(int64_t arrived) {
  if (arrived == config_.workers) {
    return;
  }
  std::vector<size_t> absent;
  for (size_t w = 0; w < arrived_.size(); ++w) {
    if (!arrived_[w] && !absent_before_[w]) {
      absent_before_[w] = true;
      absent.push_back(w);
    }
  }
  if (!absent.empty()) {
    spdlog::warn(
        "update {} goes ahead with {} of {} workers; left out for the first time: {}. What is left "
        "out is counted in the metrics late_steps/... and absent_workers",
        learner_.outer_step, arrived, config_.workers, fmt::join(absent, ", "));
  }
}

std::optional<UpdateSummary> LearnerRole::AsyncUpdate() {
  HandOutWeights();
  loop_->RunUntil([&] { return buffer_->Ready() || StopAsked(); });
  if (!buffer_->Ready()) {
    return std::nullopt;
  }
  std::vector<AggregatedGradient> to_put;
  std::vector<WorkerWindows> windows;
  std::vector<double> weights;
  for (WorkerGradient& gradient : buffer_->Gather()) {
    weights.push_back(buffer_->Weight(learner_.outer_step, gradient));
    windows.push_back(WindowsOf(gradient));
    to_put.push_back(std::move(gradient.gradient));
  }
  UpdateSummary summary;
  learner_ = (*experiment_)->learner.UpdateWeighted(std::move(learner_), to_put, weights, &summary);
  AccountUpdate(summary, windows, to_put);
  for (const WorkerGradient& pruned : buffer_->Prune(learner_.outer_step)) {
    ledger_.Account(Fate::kStale, WindowsOf(pruned), pruned.gradient);
  }
  return summary;
}

void LearnerRole::AccountUpdate(const UpdateSummary& summary,
                                std::span<const WorkerWindows> windows,
                                std::span<const AggregatedGradient> gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    ledger_.Account(summary.skipped ? Fate::kNonFinite : Fate::kUsed, windows[i], gradients[i]);
  }
  for (size_t e = 0; e < totals_.size(); ++e) {
    totals_[e] += summary.estimators[e].counts;
  }
  if (summary.skipped && learner_.skipped_updates == 1) {
    spdlog::warn(
        "the gradient of outer step {} is not finite, so theta stays as it is; this and later "
        "ones are counted in the metric skipped_updates",
        summary.outer_step);
  }
}

void LearnerRole::Report(const UpdateSummary& summary, const MetaTrainResult& result,
                         int64_t inner_steps) {
  const std::vector<std::string>& names = (*experiment_)->estimator_names;
  Metrics metrics = std::exchange(evaluation_.metrics, {});
  if (metrics_ && summary.outer_step % config_.metrics_steps == 0) {
    metrics.merge(MetricsOf(summary, names, learner_, totals_));
    AddLedgerMetrics(ledger_, names, &metrics);
    if (HasDeadline()) {
      metrics["absent_workers"] = static_cast<double>(config_.workers - arrived_count_);
    }
  }
  if (metrics_ && !metrics.empty()) {
    metrics_->Write(summary.outer_step, metrics);
  }
  if (throughput_) {
    throughput_->Note(learner_.outer_step, inner_steps);
  }
  Event(fmt::format("step:{}", learner_.outer_step));
  if (options_.on_step) {
    options_.on_step({.updates = learner_.outer_step,
                      .first_updates = learner_.outer_step - result.updates,
                      .meta_steps = config_.meta_steps,
                      .seconds = result.seconds,
                      .inner_steps = inner_steps,
                      .summary = &summary,
                      .estimator_names = &names});
  }
}

MetaTrainResult LearnerRole::Loop() {
  MetaTrainResult result;
  result.last.outer_step = -1;
  int64_t inner_steps = 0;
  const Clock::time_point start = Clock::now();
  while (learner_.outer_step < config_.meta_steps && !StopAsked()) {
    EvaluateTheta();
    const std::optional<UpdateSummary> summary = Async() ? AsyncUpdate() : SyncUpdate();
    if (!summary) {
      break;
    }
    result.last = *summary;
    ++result.updates;
    inner_steps += result.last.counts.inner_steps;
    result.seconds = SecondsSince(start);
    Report(result.last, result, inner_steps);
    if (Writes() && SaveIsDue() && learner_.outer_step < config_.meta_steps) {
      Save(false);
    }
  }
  result.interrupted = learner_.outer_step < config_.meta_steps;
  if (!result.interrupted) {
    EvaluateTheta();
    if (metrics_ && !evaluation_.metrics.empty()) {
      metrics_->Write(learner_.outer_step, evaluation_.metrics);
    }
  }
  loop_->SetUpdates(learner_.outer_step);
  Finish(&result);
  result.learner = learner_;
  result.estimator_names = (*experiment_)->estimator_names;
  result.totals = totals_;
  result.ledger = ledger_;
  return result;
}

bool LearnerRole::SaveIsDue() const {
  return (config_.checkpoint_steps > 0 && learner_.outer_step % config_.checkpoint_steps == 0) ||
         (config_.checkpoint_seconds > 0 && SecondsSince(saved_at_) >= config_.checkpoint_seconds);
}

void LearnerRole::CollectStates(SaveRequest request) {
  saving_ = true;
  last_save_ = request.last;
  request.outer_step = learner_.outer_step;
  for (Rank& rank : ranks_) {
    rank.saved.reset();
  }
  Broadcast(kSave, ToWire(request));
  loop_->RunUntil([&] {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return rank.saved.has_value(); });
  });
  saving_ = false;
}

std::vector<CheckpointFile> LearnerRole::FilesOfWorkers(const std::string& directory) {
  std::vector<CheckpointFile> files;
  for (Rank& rank : ranks_) {
    for (const SavedWorker& saved : *rank.saved) {
      files.push_back(
          config_.gather_checkpoints
              ? WriteCheckpointFile(directory, WorkerFileName(saved.worker), saved.bytes)
              : saved.file);
    }
  }
  return files;
}

void LearnerRole::Save(bool last) {
  const int64_t journal_position = journal_->position();
  const std::string directory = store_.Begin(learner_.outer_step);
  try {
    CollectStates(
        {.what = config_.gather_checkpoints ? SaveRequest::What::kSend : SaveRequest::What::kWrite,
         .last = last,
         .directory = directory});
    metrics_->Flush();
    Ledger ledger = ledger_;
    if (buffer_) {
      for (const WorkerGradient& pending : buffer_->gradients()) {
        ledger.Account(Fate::kLost, WindowsOf(pending), pending.gradient);
      }
    }
    store_.Commit({.config = resolved_,
                   .isa = CurrentIsa(),
                   .run_key = (*experiment_)->run_key,
                   .theta = (*experiment_)->optimizer->theta_layout(),
                   .learner = learner_,
                   .workers = {},
                   .totals = totals_,
                   .ledger = std::move(ledger),
                   .journal_position = journal_position},
                  FilesOfWorkers(directory));
  } catch (...) {
    store_.Discard(learner_.outer_step);
    throw;
  }
  saved_step_ = learner_.outer_step;
  saved_at_ = Clock::now();
  for (Rank& rank : ranks_) {
    rank.saved.reset();
    for (WorkerGradient& gradient : std::exchange(rank.deferred, {})) {
      TakeGradient(std::move(gradient));
    }
  }
}

void LearnerRole::Finish(MetaTrainResult* result) {
  if (Writes() && saved_step_ != learner_.outer_step) {
    Save(true);
  } else if (!Writes() || Async() || HasDeadline()) {
    CollectStates({.what = SaveRequest::What::kNothing, .last = true});
  }
  if (buffer_) {
    for (const WorkerGradient& pending : buffer_->gradients()) {
      ledger_.Account(Fate::kLost, WindowsOf(pending), pending.gradient);
    }
  }
  if (Writes()) {
    metrics_->Flush();
    throughput_->Finish();
    if (!result->interrupted) {
      Event("theta");
      WriteTheta(directory_.ThetaPath());
      result->theta_path = directory_.ThetaPath();
    }
    Event("finish");
    WriteManifest(result->interrupted ? "interrupted" : "finished");
  }
  Broadcast(kEnd, ToWire(std::string(result->interrupted ? "interrupted" : "finished")));
}

}  // namespace lopt
