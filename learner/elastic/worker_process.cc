#include "lopt/learner/elastic/worker_process.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <limits>
#include <utility>

#include "lopt/base/environment.h"
#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/progress.h"
#include "lopt/base/utf8.h"
#include "lopt/base/wakeup.h"
#include "lopt/learner/elastic/worker_session.h"
#include "lopt/learner/job/message_loop.h"
#include "lopt/learner/job/rank_device.h"

namespace lopt {
namespace {

using Clock = SteadyClock;
using WorkerEvent = Connections::Event;

constexpr std::chrono::milliseconds kWorkerSleep{20};
constexpr std::chrono::milliseconds kBetweenCalls{200};
constexpr std::chrono::seconds kLastWordGrace{5};
constexpr size_t kMostLastWordBytes = 10000;

double SecondsSince(Clock::time_point time) { return SecondsBetween(time, Clock::now()); }

// What the learner's config describes, made once and kept while connections come and go.
struct Equipped {
  std::string text;  // of the config
  std::unique_ptr<Experiment> experiment;
};

// One connection, from its beginning to its end.
class Visit {
 public:
  Visit(const ElasticWorkerOptions& options, Equipped* equipped,
        std::unique_ptr<Connections> connection)
      : options_(options),
        equipped_(equipped),
        connection_(std::move(connection)),
        heard_(Clock::now()),
        pulsed_(heard_),
        moved_(heard_),
        making_(options.threads, &wakeup_) {
    connection_->NotifyOnEvent(&wakeup_);
    Send({.type = FrameType::kJoin,
          .body =
              MakeBody(ToWire(JoinRequest{.version = options.version, .token = options.token}))});
  }
  ~Visit() { Leave(); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  // Until the connection has ended, or the process is told to stop; then it is closed. Throws Error
  // if the learner refuses it or the work fails; then the learner knows.
  void Run() {
    while (!over_) {
      bool active = false;
      while (std::optional<WorkerEvent> event = over_ ? std::nullopt : connection_->Poll()) {
        active = true;
        Take(*event);
      }
      try {
        active = making_.Poll() || active;
        active = (session_ && session_->Poll()) || active;
      } catch (const std::exception& error) {
        SayLast(error.what());
        throw;
      }
      Tend();
      if (!active) {
        wakeup_.WaitFor(kWorkerSleep);
      }
    }
    Leave();  // work that is under way still takes a while
  }

  bool welcome() const { return welcome_.has_value(); }
  const std::string& end() const { return end_; }  // what kEnd said; empty: it did not come
  const std::string& why() const { return why_; }  // the connection ended without

 private:
  void Send(Frame frame) { connection_->Send(1, std::move(frame)); }

  void Leave() {
    if (connection_) {
      connection_->NotifyOnEvent(nullptr);
      connection_.reset();
    }
  }

  void Take(const WorkerEvent& event) {
    if (event.what == WorkerEvent::What::kClosed) {
      why_ = event.text.empty() ? "the connection has ended" : PlainText(event.text, kMostPeerText);
      over_ = true;
      return;
    }
    heard_ = Clock::now();
    const Frame& frame = event.frame;
    switch (frame.type) {
      case FrameType::kWelcome:
        Welcomed(FromWire<Welcome>(BytesOf(frame)));
        break;
      case FrameType::kPulse:
        break;
      case FrameType::kRefused:
        Fail("the learner refuses this process: {}",
             PlainText(FromWire<std::string>(BytesOf(frame)), kMostPeerText));
      case FrameType::kEnd:
        end_ = PlainText(FromWire<std::string>(BytesOf(frame)), kMostPeerText);
        over_ = true;
        break;
      default:
        Require(session_.has_value(), "the learner sent a frame of type {} too early",
                static_cast<int>(frame.type));
        session_->Handle(frame);
    }
  }

  void Welcomed(Welcome welcome) {
    Require(!welcome_, "the learner welcomes this process twice");
    welcome_ = std::move(welcome);
    // What it sends, such as the states of a worker, has the length that its config gives it.
    connection_->Trust(1, std::numeric_limits<size_t>::max());
    making_.Post([this] { Make(); }, [this] { Equip(); });
  }

  void Make() {
    const std::string& text = welcome_->config;
    auto config = ReadOptions<MetaTrainConfig>(Config::Parse(text, "the learner's config"));
    progress_timeout_ = config.progress_timeout_seconds;
    if (options_.data_dir) {
      config.data_dir = *options_.data_dir;
    }
    if (options_.device) {
      config.device = *options_.device;
    }
    if (!config.isa.empty()) {
      PinIsa(config.isa);
    }
    if (!equipped_->experiment || equipped_->text != text) {
      equipped_->experiment = std::make_unique<Experiment>(
          config, DeviceOfRank(config.device, options_.gpus, options_.place_on_host));
      equipped_->text = text;
    }
  }

  void Equip() {
    session_.emplace(equipped_->experiment.get(), options_.threads, &wakeup_,
                     [this](Frame frame) { Send(std::move(frame)); });
    Send({.type = FrameType::kEquipped,
          .body =
              MakeBody(ToWire(Equipment{.hello = {.host = Environment::Current().HostName(),
                                                  .pid = Environment::Current().ProcessId(),
                                                  .version = options_.version,
                                                  .isa = CurrentIsa(),
                                                  .device = ModelOf(equipped_->experiment->device),
                                                  .config = welcome_->config},
                                        .threads = options_.threads}))});
  }

  void SayLast(const std::string& text) {
    Send(
        {.type = FrameType::kFailed, .body = MakeBody(ToWire(text.substr(0, kMostLastWordBytes)))});
    connection_->Close(1);
    const Clock::time_point start = Clock::now();
    while (!connection_->Idle() && Clock::now() - start < kLastWordGrace) {
      connection_->Poll();
      wakeup_.WaitFor(kWorkerSleep);
    }
  }

  // So long the other side may be silent. What has said nothing yet may be no learner, or one that
  // still reads its data.
  double TimeoutSeconds() const {
    return welcome_ ? welcome_->timeout_seconds
                    : std::max(options_.patience_seconds, kStrangerSeconds);
  }

  void Tend() {
    if (options_.stop != nullptr && *options_.stop && !stop_seen_) {
      stop_seen_ = true;
      if (!options_.one_job || !session_) {
        over_ = true;
        return;
      }
      Send({.type = FrameType::kAskStop});
    }
    // A long frame on a slow link: the learner is there, and this process gets on.
    if (const int64_t arrived = connection_->Arrived(1);
        std::exchange(arrived_, arrived) != arrived) {
      heard_ = Clock::now();
      NoteProgress();
    }
    const double timeout = TimeoutSeconds();
    if (welcome_ && SecondsSince(pulsed_) >= PulseSeconds(timeout)) {
      pulsed_ = Clock::now();
      Send({.type = FrameType::kPulse, .body = MakeBody(ToWire(ProgressNoted()))});
    }
    if (timeout > 0 && !options_.learner_is_watched) {
      // A process that was stopped itself has not listened.
      if (SecondsSince(tended_) > timeout / 4) {
        heard_ = Clock::now();
      }
      if (SecondsSince(heard_) > timeout) {
        why_ = welcome_ ? fmt::format("it has been silent for {:.1f} s", SecondsSince(heard_))
                        : "it says nothing";
        over_ = true;
      }
    }
    // Nor has its work got on.
    if (session_ && SecondsSince(tended_) > progress_timeout_ / 4) {
      moved_ = Clock::now();
    }
    tended_ = Clock::now();
    CheckProgress();
  }

  void CheckProgress() {
    const int64_t progress = ProgressNoted();
    if (!session_ || session_->Idle() || progress != progress_) {
      progress_ = progress;
      moved_ = Clock::now();
    }
    if (session_ && progress_timeout_ > 0 && SecondsSince(moved_) > progress_timeout_) {
      Environment::Current().Say(
          fmt::format("this worker process has made no progress for {:.1f} s, longer than "
                      "progress_timeout_seconds; it ends",
                      SecondsSince(moved_)));
      std::_Exit(kExitRankLost);
    }
  }

  const ElasticWorkerOptions& options_;
  Equipped* equipped_;
  Wakeup wakeup_;
  std::unique_ptr<Connections> connection_;
  std::optional<Welcome> welcome_;
  double progress_timeout_ = 0;
  std::string end_;
  std::string why_;
  bool over_ = false;
  bool stop_seen_ = false;
  int64_t progress_ = 0;
  int64_t arrived_ = 0;  // of Connections
  Clock::time_point heard_;
  Clock::time_point pulsed_;
  Clock::time_point moved_;
  Clock::time_point tended_ = Clock::now();
  std::optional<WorkerSession> session_;
  Background making_;  // the last: its work ends before what it works on goes
};

}  // namespace

ElasticWorkerEnd RunElasticWorker(const ElasticWorkerOptions& options,
                                  const std::function<std::unique_ptr<Connections>()>& connect) {
  Equipped equipped;
  Clock::time_point lost = Clock::now();
  bool interrupted = false;
  std::string said;
  Wakeup pause;
  for (;;) {
    std::string why;
    bool last = false;
    {
      Visit visit(options, &equipped, connect());
      visit.Run();
      if (visit.end() == "finished") {
        return ElasticWorkerEnd::kFinished;
      }
      if (visit.welcome()) {
        interrupted = visit.end() == "interrupted";
        lost = Clock::now();
        said.clear();
        last = options.one_job;
      }
      why = visit.end().empty() ? visit.why() : "the job was " + visit.end();
    }
    if (options.stop != nullptr && *options.stop) {
      return ElasticWorkerEnd::kInterrupted;
    }
    if (last || SecondsSince(lost) >= options.patience_seconds) {
      Require(interrupted, "there is no learner any more: {}", why);
      return ElasticWorkerEnd::kInterrupted;
    }
    if (std::exchange(said, why) != why) {
      spdlog::info("no learner: {}; looking for one for {:.0f} s", why, options.patience_seconds);
    }
    pause.WaitFor(kBetweenCalls);
  }
}

}  // namespace lopt
