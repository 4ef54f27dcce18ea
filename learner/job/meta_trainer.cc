#include "lopt/learner/job/meta_trainer.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "lopt/base/device.h"
#include "lopt/base/environment.h"
#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/option_words.h"
#include "lopt/base/progress.h"
#include "lopt/base/wakeup.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/job/background.h"
#include "lopt/learner/job/learner_role.h"
#include "lopt/learner/job/message_loop.h"
#include "lopt/learner/job/placement.h"
#include "lopt/learner/job/rank_device.h"
#include "lopt/learner/job/ranks.h"
#include "lopt/learner/job/worker_role.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/learner/run/status_file.h"
#include "lopt/learner/transport/end_job.h"
#include "lopt/learner/transport/local_transport.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {
namespace {

using Clock = SteadyClock;

// How long a rank that has failed waits for the learner to end the job.
constexpr std::chrono::seconds kFailureGrace{5};

void CheckRun(const MetaTrainerOptions& options, const Transport& transport) {
  Require(!(options.resume && options.overwrite), "resume and overwrite exclude each other");
  Require(options.resume || !options.from, "{} says where to go on; it wants {}",
          OptionWords("from", "STEP"), FlagWords("resume"));
  Require(!options.out_dir.empty() || !(options.resume || options.overwrite),
          "resume and overwrite need an output directory ({})", OptionWords("out"));
  Require(!options.learner_only || transport.size() > 1,
          "learner_only needs other ranks to compute the workers; this job has one");
  if (options.out_dir.empty() || transport.rank() != 0) {
    return;
  }
  const RunDirectory directory(options.out_dir, RunKind::kMetaTraining);
  Require(!options.resume || directory.HoldsRun(), "cannot resume: {} holds no run",
          options.out_dir);
  if (options.resume || options.overwrite) {
    directory.RequireNoOther();
  } else {
    directory.RequireNoRun();
  }
}

// One rank of a job: makes the experiment, then the roles that work on it (a worker role, on rank 0
// a learner role as well), and feeds them with messages.
class RankJob {
 public:
  RankJob(const MetaTrainConfig& config, const MetaTrainerOptions& options,
          const WorkerBlock& block, const Device* device, Transport* transport)
      : config_(config),
        options_(options),
        block_(block),
        device_(device),
        transport_(transport),
        reproducible_(WhyNotReproducible(*ModeRegistry().Make(config.mode)).empty()),
        loop_(transport, &wakeup_,
              {.timeout_seconds = config.worker_timeout_seconds,
               .progress_timeout_seconds = config.progress_timeout_seconds,
               .progress = {[this] { return ComputingProgress(); },
                            [this] { return FilesProgress(); }},
               .on_message = [this](Message message) { Dispatch(std::move(message)); },
               .on_poll = [this] { return PollBackground(); },
               .urgent = [this] { return Urgent(); },
               .state = [this] { return State(); }}),
        background_(options.threads, &wakeup_) {
    if (transport->rank() == 0) {
      ranks_.emplace(config, options, transport, &loop_);
      files_.emplace(1, &wakeup_);
    }
  }
  ~RankJob() { transport_->NotifyOnArrival(nullptr); }
  RankJob(const RankJob&) = delete;
  RankJob& operator=(const RankJob&) = delete;

  MetaTrainResult Run() {
    transport_->Send(0, kHello,
                     ToWire(Hello{.host = Environment::Current().HostName(),
                                  .pid = Environment::Current().ProcessId(),
                                  .version = options_.version,
                                  .isa = CurrentIsa(),
                                  .device = block_.count > 0 ? ModelOf(device_) : "",
                                  .config = WriteOptions("", config_).Dump()}));
    background_.Post([this] { MakeExperiment(); }, [this] { BeginWork(); });
    MetaTrainResult result;
    if (ranks_) {
      result = Learn();
    } else {
      result.last.outer_step = -1;
    }
    loop_.RunUntil([this] { return Ended(); });
    Require(end_ != "failed", "the job has ended because the learner failed");
    result.interrupted = end_ == "interrupted";
    transport_->BeginFarewell();
    loop_.WriteStatus();
    loop_.RunUntil([this] { return transport_->FarewellDone(); });
    return result;
  }

 private:
  MetaTrainResult Learn() {
    try {
      ranks_->Meet();
      loop_.RunUntil([this] { return worker_.has_value(); });
      return learner_.emplace(&*experiment_, options_, &*ranks_, &loop_, &background_, &*files_)
          .Run();
    } catch (const std::exception& error) {
      NoteFailure(options_.on_failure, transport_, error.what());
      ranks_->End("failed");
      throw;
    }
  }

  void MakeExperiment() {
    experiment_.emplace(config_, device_);
    if (ranks_ && options_.on_experiment) {
      options_.on_experiment(*experiment_);
    }
  }

  // The experiment has been made.
  void BeginWork() {
    worker_.emplace(&*experiment_, block_, options_.on_event, &background_,
                    [this](int kind, std::vector<std::byte> bytes) {
                      transport_->Send(0, kind, std::move(bytes));
                    });
    for (const Message& message : std::exchange(early_, {})) {
      worker_->Handle(message);
    }
  }

  void Dispatch(Message message) {
    switch (message.kind) {
      case kBegin:
      case kState:
      case kGo:
      case kWeights:
      case kSave:
        if (!begun_) {
          begun_ = true;
          if (!ranks_ && !options_.out_dir.empty()) {
            loop_.WriteStatusTo(StatusPath(options_.out_dir, transport_->rank()));
          }
        }
        if (!worker_) {
          early_.push_back(std::move(message));
          break;
        }
        worker_->Handle(message);
        if (!ranks_) {
          loop_.SetUpdates(worker_->updates());
        }
        break;
      case kEnd:
        end_ = FromWire<std::string>(message.bytes);
        break;
      default:
        Require(ranks_.has_value(), "rank {} got a message of kind {}, which is for the learner",
                transport_->rank(), message.kind);
        ranks_->Handle(std::move(message));
    }
  }

  bool PollBackground() {
    if (files_ && files_->Poll()) {
      return true;
    }
    try {
      return background_.Poll();
    } catch (const std::exception& error) {
      if (transport_->size() == 1) throw;  // nobody else has to hear of it
      failure_ = error.what();
      failed_at_ = Clock::now();
      transport_->Send(0, kFailure, ToWire(failure_));
      return true;
    }
  }

  bool Ended() {
    if (!stop_sent_ && !ranks_ && options_.stop != nullptr && *options_.stop) {
      stop_sent_ = true;
      transport_->Send(0, kStop, {});
    }
    if (!failure_.empty() && Clock::now() - failed_at_ > kFailureGrace) {
      throw Error(failure_);
    }
    return !end_.empty();
  }

  // A computing rank has nothing to wait for, unless its learner goes on without it.
  bool Urgent() const { return background_.Idle() || (ranks_ && !reproducible_); }

  std::string_view State() const {
    if (!end_.empty()) {
      return "done";
    }
    if (!begun_) {
      return "running";
    }
    if ((worker_ && worker_->saving()) || (files_ && !files_->Idle())) {
      return "checkpointing";
    }
    return background_.Idle() ? "waiting" : "computing";
  }

  std::optional<int64_t> ComputingProgress() const {
    return background_.Idle() ? std::nullopt : std::optional(ProgressNoted());
  }
  std::optional<int64_t> FilesProgress() const {
    return !files_ || files_->Idle() ? std::nullopt : std::optional(files_->ended());
  }

  MetaTrainConfig config_;
  MetaTrainerOptions options_;
  WorkerBlock block_;  // that this rank computes
  const Device* device_;
  Transport* transport_;
  Wakeup wakeup_;
  bool reproducible_;
  std::optional<Experiment> experiment_;  // made in the background; then it does not change
  std::optional<WorkerRole> worker_;      // there when the experiment is
  std::vector<Message> early_;            // for the worker role, came before it was there
  MessageLoop loop_;
  std::optional<Ranks> ranks_;          // on rank 0
  std::optional<LearnerRole> learner_;  // on rank 0
  bool begun_ = false;
  bool stop_sent_ = false;
  std::string end_;  // what kEnd said
  std::string failure_;
  Clock::time_point failed_at_ = {};
  // The last, so that their work ends before what they work on goes.
  std::optional<Background> files_;  // on rank 0
  Background background_;
};

}  // namespace

MetaTrainResult RunMetaTraining(const MetaTrainConfig& config, const MetaTrainerOptions& options) {
  std::unique_ptr<Transport> alone;
  Transport* transport = options.transport;
  if (transport == nullptr) {
    alone = std::move(MakeLocalTransports(1)[0]);
    transport = alone.get();
  }
  CheckConfig(config);
  CheckRun(options, *transport);
  if (!config.isa.empty()) {
    PinIsa(config.isa);
  }
  // A rank that computes nothing, such as a learner on a machine without a GPU, opens no device.
  const WorkerBlock block =
      WorkersOfRank(config.workers, transport->rank(), transport->size(), options.learner_only);
  const Device* device = block.count > 0
                             ? DeviceOfRank(config.device, options.gpus, transport->rank_on_host())
                             : nullptr;
  if (device != nullptr) {
    spdlog::info("rank {}: windows run on {}: {}", transport->rank(), device->name(),
                 device->description());
  }
  return RankJob(config, options, block, device, transport).Run();
}

}  // namespace lopt
