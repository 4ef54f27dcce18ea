#include "learner/job/meta_trainer.h"

#include <unistd.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/isa.h"
#include "learner/experiment.h"
#include "learner/job/background.h"
#include "learner/job/learner_role.h"
#include "learner/job/message_loop.h"
#include "learner/job/worker_role.h"
#include "learner/run/run_directory.h"
#include "learner/run/status_file.h"
#include "learner/transport/local_transport.h"

namespace lopt {
namespace {

using Clock = std::chrono::steady_clock;

// How long a rank that has failed waits for the learner to end the job.
constexpr std::chrono::seconds kFailureGrace{5};

void CheckOptions(const MetaTrainConfig& config, const MetaTrainerOptions& options,
                  const Transport& transport) {
  Require(!config.estimators.empty(), "estimators: must name at least one estimator");
  CheckCombinations(config);
  Require(!(options.resume && options.overwrite), "resume and overwrite exclude each other");
  Require(!options.out_dir.empty() || !(options.resume || options.overwrite),
          "resume and overwrite need an output directory");
  Require(!options.resume || options.init_theta.empty(),
          "init_theta is for a new run; a resumed one goes on with the theta of its checkpoint");
  Require(!options.learner_only || transport.size() > 1,
          "learner_only needs other ranks to compute the workers; this job has one");
  if (options.out_dir.empty() || transport.rank() != 0) {
    return;
  }
  const bool holds_run = RunDirectory(options.out_dir).HoldsRun();
  Require(!options.resume || holds_run, "cannot resume: {} holds no run", options.out_dir);
  Require(!holds_run || options.resume || options.overwrite,
          "{} holds a run already: resume it (--resume), replace it (--overwrite), or choose "
          "another directory",
          options.out_dir);
}

// One rank of a job: the worker role, on rank 0 the learner role, and the loop that feeds them.
class RankJob {
 public:
  RankJob(const MetaTrainConfig& config, const MetaTrainerOptions& options, Transport* transport)
      : config_(config),
        options_(options),
        transport_(transport),
        worker_(config, &experiment_,
                WorkersOfRank(config.workers, transport->rank(), transport->size(),
                              options.learner_only),
                options.on_event, &background_, transport),
        loop_(transport, &wakeup_,
              {.timeout_seconds = config.worker_timeout_seconds,
               .on_message = [this](Message message) { Dispatch(std::move(message)); },
               .on_poll = [this] { return PollBackground(); },
               .urgent = [this] { return Urgent(); },
               .state = [this] { return State(); }}),
        background_(options.threads, &wakeup_) {
    if (transport->rank() == 0) {
      learner_.emplace(config, options, &made_, transport, &loop_, &background_);
    }
  }
  ~RankJob() { transport_->NotifyOnArrival(nullptr); }
  RankJob(const RankJob&) = delete;
  RankJob& operator=(const RankJob&) = delete;

  MetaTrainResult Run() {
    transport_->Send(0, kHello,
                     ToWire(Hello{.host = HostName(),
                                  .pid = ::getpid(),
                                  .version = options_.version,
                                  .isa = CurrentIsa(),
                                  .config = WriteOptions("", config_).Dump()}));
    background_.Post([this] { experiment_.emplace(config_); }, [this] { made_ = &*experiment_; });
    MetaTrainResult result;
    if (learner_) {
      result = learner_->Run();
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
  void Dispatch(Message message) {
    switch (message.kind) {
      case kBegin:
      case kState:
      case kGo:
      case kWeights:
      case kTaken:
      case kSave:
        if (!begun_) {
          begun_ = true;
          if (!learner_ && !options_.out_dir.empty()) {
            loop_.WriteStatusTo(StatusPath(options_.out_dir, transport_->rank()));
          }
        }
        worker_.Handle(message);
        if (!learner_) {
          loop_.SetUpdates(worker_.updates());
        }
        break;
      case kEnd:
        end_ = FromWire<std::string>(message.bytes);
        break;
      default:
        Require(learner_.has_value(), "rank {} got a message of kind {}, which is for the learner",
                transport_->rank(), message.kind);
        learner_->Handle(std::move(message));
    }
  }

  bool PollBackground() {
    try {
      return background_.Poll();
    } catch (const std::exception& error) {
      failure_ = error.what();
      failed_at_ = Clock::now();
      transport_->Send(0, kFailure, ToWire(failure_));
      return true;
    }
  }

  bool Ended() {
    if (!stop_sent_ && !learner_ && options_.stop != nullptr && *options_.stop) {
      stop_sent_ = true;
      transport_->Send(0, kStop, {});
    }
    if (!failure_.empty() && Clock::now() - failed_at_ > kFailureGrace) {
      throw Error(failure_);
    }
    return !end_.empty();
  }

  // A computing rank has nothing to wait for, unless its learner goes on without it.
  bool Urgent() const {
    return background_.Idle() ||
           (learner_ && (config_.mode == "async" || config_.deadline_seconds > 0));
  }

  std::string_view State() const {
    if (!end_.empty()) {
      return "done";
    }
    if (!begun_) {
      return "running";
    }
    if (worker_.saving() || (learner_ && learner_->saving())) {
      return "checkpointing";
    }
    return background_.Idle() ? "waiting" : "computing";
  }

  MetaTrainConfig config_;
  MetaTrainerOptions options_;
  Transport* transport_;
  Wakeup wakeup_;
  std::optional<Experiment> experiment_;  // for the background
  const Experiment* made_ = nullptr;      // set when the background has made it
  WorkerRole worker_;
  MessageLoop loop_;
  std::optional<LearnerRole> learner_;
  bool begun_ = false;
  bool stop_sent_ = false;
  std::string end_;  // what kEnd said
  std::string failure_;
  Clock::time_point failed_at_ = {};
  Background background_;  // the last, so that its work ends before what it works on goes
};

}  // namespace

MetaTrainResult RunMetaTraining(const MetaTrainConfig& config, const MetaTrainerOptions& options) {
  std::unique_ptr<Transport> alone;
  Transport* transport = options.transport;
  if (transport == nullptr) {
    alone = std::move(MakeLocalTransports(1)[0]);
    transport = alone.get();
  }
  CheckOptions(config, options, *transport);
  if (!config.isa.empty()) {
    PinIsa(config.isa);
  }
  return RankJob(config, options, transport).Run();
}

}  // namespace lopt
