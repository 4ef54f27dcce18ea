#include "lopt/learner/train/trainer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lopt/base/environment.h"
#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/option_words.h"
#include "lopt/base/parallel.h"
#include "lopt/base/progress.h"
#include "lopt/base/wakeup.h"
#include "lopt/learner/job/await_background.h"
#include "lopt/learner/job/background.h"
#include "lopt/learner/job/hello.h"
#include "lopt/learner/job/message_loop.h"
#include "lopt/learner/job/placement.h"
#include "lopt/learner/run/status_file.h"
#include "lopt/learner/train/train_writer.h"
#include "lopt/learner/transport/collectives.h"
#include "lopt/learner/transport/end_job.h"
#include "lopt/learner/transport/local_transport.h"
#include "lopt/tasks/data/data_checksums.h"

namespace lopt {
namespace {

// What rank 0 has the ranks do.
struct TrainOrder {
  int64_t step = 0;
  Eigen::VectorXf params = {};
  Eigen::VectorXf model_state = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("step", step);
    visit("params", params);
    visit("model_state", model_state);
  }
};

// What a rank answers.
struct TrainAnswer {
  bool stop = false;       // it was told to stop
  std::string error = {};  // why it has failed; empty: it has not
  std::string data = {};   // where it says who it is: Training::data
  std::vector<WorkerStep> workers = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("stop", stop);
    visit("error", error);
    visit("data", data);
    visit("workers", workers);
  }
};

void CheckTraining(const TrainOptions& options, const Transport& transport) {
  Require(!(options.resume && options.overwrite), "resume and overwrite exclude each other");
  Require(!options.out_dir.empty() || !(options.resume || options.overwrite),
          "resume and overwrite need an output directory ({})", OptionWords("out"));
  if (options.out_dir.empty() || transport.rank() != 0) return;
  const RunDirectory directory(options.out_dir, RunKind::kTraining);
  Require(!options.resume || directory.HoldsRun(), "cannot resume: {} holds no run",
          options.out_dir);
  if (options.resume || options.overwrite) {
    directory.RequireNoOther();
  } else {
    directory.RequireNoRun();
  }
}

// One rank of a job.
class TrainJob {
 public:
  TrainJob(const TrainConfig& config, const TrainOptions& options, Transport* transport)
      : config_(config),
        options_(options),
        transport_(transport),
        all_(AllRanks(*transport)),
        collectives_(transport, kCollective),
        loop_(transport, &wakeup_,
              {.timeout_seconds = config.worker_timeout_seconds,
               .progress_timeout_seconds = config.progress_timeout_seconds,
               .progress = {[this] {
                 return background_.Idle() ? std::nullopt : std::optional(ProgressNoted());
               }},
               .on_message = [this](const Message& message) { Take(message); },
               .on_poll = [this] { return background_.Poll(); },
               .urgent = [this] { return background_.Idle(); },
               .state = [this] { return State(); }}),
        background_(options.threads, &wakeup_) {}
  ~TrainJob() { transport_->NotifyOnArrival(nullptr); }
  TrainJob(const TrainJob&) = delete;
  TrainJob& operator=(const TrainJob&) = delete;

  TrainResult Run() {
    TrainResult result;
    if (transport_->rank() == 0) {
      result = Lead();
    } else {
      Follow();
      result.interrupted = end_ == "interrupted";
    }
    end_ = "done";
    transport_->BeginFarewell();
    loop_.WriteStatus();
    loop_.RunUntil([this] { return transport_->FarewellDone(); });
    return result;
  }

 private:
  void Take(const Message& message) {
    if (message.kind == kEnd) {
      end_ = FromWire<std::string>(message.bytes);
    } else {
      Require(message.kind == kCollective, "rank {} got a message of kind {}, which is not for it",
              transport_->rank(), message.kind);
      collectives_.Take(message);
    }
  }

  bool ToldToStop() const { return options_.stop != nullptr && *options_.stop; }

  std::string_view State() const {
    if (!end_.empty()) return "done";
    if (saving_) return "checkpointing";
    if (!training_) return "running";
    return background_.Idle() ? "waiting" : "computing";
  }

  void InBackground(const std::function<void()>& work) {
    AwaitBackground(&background_, &loop_, work);
  }

  // The result of an operation, or none if the job has ended before.
  template <class T>
  std::optional<T> Await(Pending<T> pending) {
    loop_.RunUntil([&] { return pending.Done() || !end_.empty(); });
    return pending.Done() ? std::optional(pending.Get()) : std::nullopt;
  }

  // Makes the training, and has rank 0 compare what the ranks run.
  void Meet() {
    TrainAnswer answer;
    try {
      InBackground([this] { training_.emplace(config_); });
      answer.data = training_->data();
    } catch (const std::exception& error) {
      if (transport_->rank() == 0) throw;
      answer.error = error.what();
    }
    const Hello hello{.host = Environment::Current().HostName(),
                      .pid = Environment::Current().ProcessId(),
                      .version = options_.version,
                      .isa = CurrentIsa(),
                      .config = WriteOptions("", config_).Dump()};
    const auto hellos = Await(collectives_.Gather(all_, 0, ToWire(hello)));
    const auto answers = Await(collectives_.Gather(all_, 0, ToWire(answer)));
    if (transport_->rank() != 0) return;
    for (int rank = 0; rank < transport_->size(); ++rank) {
      const auto other = FromWire<Hello>((*hellos)[static_cast<size_t>(rank)]);
      names_.push_back(fmt::format("rank {} ({})", rank, other.host));
      CompareHellos(hello, names_.back(), other, options_.allow_isa_change);
    }
    const std::vector<TrainAnswer> all = CheckAnswers(*answers);
    for (size_t rank = 1; rank < all.size(); ++rank) {
      RequireSameDataOn(names_[rank], all[rank].data, names_[0], all[0].data);
    }
    if (transport_->size() > 1) {
      spdlog::info("{}: {} workers", transport_->Description(), config_.workers);
    }
    if (const std::string unlike = training_->UnlikeTrainings(); !unlike.empty()) {
      spdlog::warn("optimizer: {}. Try a smaller and a larger lr, and compare with Adam", unlike);
    }
    if (transport_->size() > config_.workers) {
      spdlog::warn("workers is {}, so {} of {} ranks have none and stay idle", config_.workers,
                   transport_->size() - config_.workers, transport_->size());
    }
  }

  std::vector<TrainAnswer> CheckAnswers(const std::vector<Collectives::Bytes>& bytes) const {
    std::vector<TrainAnswer> answers;
    for (size_t rank = 0; rank < bytes.size(); ++rank) {
      answers.push_back(FromWire<TrainAnswer>(bytes[rank]));
      Require(answers.back().error.empty(), "{}: {}", names_[rank], answers.back().error);
    }
    return answers;
  }

  // What this rank's workers make of an order.
  TrainAnswer Answer(const TrainOrder& order) {
    TrainAnswer answer;
    const WorkerBlock block =
        WorkersOfRank(config_.workers, transport_->rank(), transport_->size(), false);
    answer.workers.resize(static_cast<size_t>(block.count));
    InBackground([&] {
      ParallelFor(block.count, [&](int64_t w) {
        WorkspacePool::Lease scratch(workspaces_);
        answer.workers[static_cast<size_t>(w)] = training_->Evaluate(
            block.first + w, order.step, order.params, order.model_state, *scratch);
      });
    });
    answer.stop = ToldToStop();
    return answer;
  }

  void Follow() {
    Meet();
    while (const auto bytes = Await(collectives_.Broadcast(all_, 0))) {
      if (!begun_ && !options_.out_dir.empty()) {
        loop_.WriteStatusTo(StatusPath(options_.out_dir, transport_->rank()));
      }
      begun_ = true;
      const auto order = FromWire<TrainOrder>(*bytes);
      loop_.SetUpdates(order.step);
      TrainAnswer answer;
      try {
        answer = Answer(order);
      } catch (const std::exception& error) {
        answer.error = error.what();
      }
      Await(collectives_.Gather(all_, 0, ToWire(answer)));
    }
    Require(end_ != "failed", "the job has ended because rank 0 failed");
  }

  TrainResult Lead() {
    try {
      Meet();
      if (!options_.out_dir.empty()) writer_.emplace(*training_, options_);
      return TrainNotingFailure();
    } catch (const std::exception& error) {
      NoteFailure(options_.on_failure, transport_, error.what());
      End("failed");
      throw;
    }
  }

  void End(const std::string& how) {
    for (int rank = 1; rank < transport_->size(); ++rank) {
      transport_->Send(rank, kEnd, ToWire(how));
    }
  }

  TrainResult TrainNotingFailure() {
    try {
      InBackground([this] { state_ = writer_ ? writer_->Begin() : training_->Start(); });
      if (writer_) loop_.WriteStatusTo(StatusPath(options_.out_dir, 0));
      return Loop();
    } catch (const std::exception& error) {
      if (writer_) writer_->Fail(error.what(), state_.step);
      throw;
    }
  }

  TrainResult Loop() {
    TrainResult result;
    const int64_t first_step = state_.step;
    const auto start = SteadyClock::now();
    bool stop = false;
    while (state_.step < config_.steps && !stop && !ToldToStop()) {
      const int64_t step = state_.step;
      loop_.SetUpdates(step);
      Metrics metrics = Judged();
      Metrics of_update;
      stop = Step(&of_update);
      ++result.updates;
      result.seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
      const double loss = of_update.at("loss/train");
      if (step % config_.metrics_steps == 0) metrics.merge(of_update);
      Write(step, metrics);
      if (writer_) writer_->NoteThroughput(state_.step, result.updates);
      if (options_.on_event) options_.on_event(fmt::format("step:{}", state_.step));
      if (options_.on_step) {
        options_.on_step({.step = state_.step,
                          .first_step = first_step,
                          .steps = config_.steps,
                          .seconds = result.seconds,
                          .loss = loss});
      }
      result.loss = loss;
      if (writer_ && writer_->SaveIsDue(state_.step)) Save();
    }
    loop_.SetUpdates(state_.step);
    result.interrupted = state_.step < config_.steps;
    if (writer_) {
      writer_->FinishThroughput();
      Save();
    }
    if (!result.interrupted) {
      // After the checkpoint: a training that goes on from it judges this model again.
      result.judged = Judged();
      Write(state_.step, result.judged);
    }
    if (writer_) result.model_path = writer_->Finish(state_, result.interrupted);
    End(result.interrupted ? "interrupted" : "finished");
    result.state = std::move(state_);
    result.classes = training_->task().parts().classes;
    return result;
  }

  // One update of the state by all ranks. Returns whether one was told to stop.
  bool Step(Metrics* metrics) {
    const TrainOrder order{
        .step = state_.step, .params = state_.params, .model_state = state_.model_state};
    Await(collectives_.Broadcast(all_, 0, ToWire(order)));
    const TrainAnswer own = Answer(order);
    std::vector<TrainAnswer> answers =
        CheckAnswers(*Await(collectives_.Gather(all_, 0, ToWire(own))));
    bool stop = false;
    std::vector<WorkerStep> workers;
    for (TrainAnswer& answer : answers) {
      stop = stop || answer.stop;
      std::ranges::move(answer.workers, std::back_inserter(workers));
    }
    InBackground([&] {
      WorkspacePool::Lease scratch(workspaces_);
      *metrics = training_->Update(workers, &state_, *scratch);
    });
    return stop;
  }

  // The metrics of the model as it is, where they are due.
  Metrics Judged() {
    Metrics metrics;
    if (config_.eval_every == 0 ||
        (state_.step % config_.eval_every != 0 && state_.step < config_.steps)) {
      return metrics;
    }
    InBackground([&] {
      WorkspacePool::Lease scratch(workspaces_);
      metrics = training_->Judge(state_, *scratch);
    });
    return metrics;
  }

  void Write(int64_t step, const Metrics& metrics) {
    if (writer_ && !metrics.empty()) writer_->WriteMetrics(step, metrics);
  }

  void Save() {
    saving_ = true;
    InBackground([this] { writer_->Save(state_); });
    saving_ = false;
  }

  TrainConfig config_;
  TrainOptions options_;
  Transport* transport_;
  RankGroup all_;
  Collectives collectives_;
  Wakeup wakeup_;
  std::optional<Training> training_;  // made in the background; then it does not change
  std::vector<std::string> names_;    // of the ranks, on rank 0
  WorkspacePool workspaces_;
  MessageLoop loop_;
  TrainState state_;                   // on rank 0
  std::optional<TrainWriter> writer_;  // on rank 0
  bool begun_ = false;
  bool saving_ = false;
  std::string end_;        // what kEnd said
  Background background_;  // the last: its work ends before what it works on goes
};

}  // namespace

TrainResult RunTraining(const TrainConfig& config, const TrainOptions& options) {
  std::unique_ptr<Transport> alone;
  Transport* transport = options.transport;
  if (transport == nullptr) {
    alone = std::move(MakeLocalTransports(1)[0]);
    transport = alone.get();
  }
  CheckOptions("training", config);
  CheckTraining(options, *transport);
  if (!config.isa.empty()) PinIsa(config.isa);
  return TrainJob(config, options, transport).Run();
}

}  // namespace lopt
