#include <doctest/doctest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/wakeup.h"
#include "lopt/learner/elastic/answer_rules.h"
#include "lopt/learner/elastic/elastic_transport.h"
#include "lopt/learner/elastic/frame_parts.h"
#include "lopt/learner/elastic/worker_process.h"
#include "lopt/learner/elastic/worker_session.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/worker_files.h"
#include "tests/elastic_lies.h"
#include "tests/error_of.h"
#include "tests/learner_runs.h"
#include "tests/like_system_environment.h"
#include "tests/mutated_frames.h"
#include "tests/temp_directory.h"

// An elastic learner with workers that are in this thread, too: what happens when is drawn.

namespace lopt {
namespace {

using Event = Connections::Event;
using What = Event::What;

// What may happen at a look at the connections, each with a probability; the rest of the looks
// moves one frame.
struct Chances {
  double join = 0;
  double die = 0;
  size_t most = 8;  // connections at a time
};

class FakeConnections final : public Connections {
 public:
  FakeConnections(const Experiment* experiment, uint64_t seed, Chances chances)
      : experiment_(experiment), chances_(chances), random_(seed) {}

  // One more process, now. Frames that it sends go through `mangle`.
  void Join(Mangle mangle = {}) {
    const int64_t number = ++joined_;
    auto process = std::make_unique<Process>();
    process->mangle = std::move(mangle);
    Process* mine = process.get();
    process->session = std::make_unique<WorkerSession>(
        experiment_, 1, &mine->wakeup, [mine](const Frame& frame) { mine->up.push_back(frame); });
    process->up.push_back(
        {.type = FrameType::kJoin,
         .body = MakeBody(ToWire(JoinRequest{.version = "test", .token = token_}))});
    processes_[number] = std::move(process);
    events_.push_back({.what = What::kOpened, .connection = number, .peer = "here"});
  }

  // Answers to the learner move in so many parts.
  void SetParts(int64_t parts) { parts_ = parts; }
  // What processes say that come from now on.
  void UseToken(const std::string& token) { token_ = token; }
  // Where the last text goes with which the learner has refused a process.
  void NoteRefusalsIn(std::string* text) { refused_ = text; }
  // So many processes come when the learner tells the first how the job has ended; all that are
  // told add it to `ends`.
  void JoinAtEnd(int processes, std::vector<std::string>* ends) {
    join_at_end_ = processes;
    ends_ = ends;
  }

  int64_t joined() const { return joined_; }
  // The largest frame that a process has sent, and the most bytes that any might have had.
  size_t largest() const { return largest_; }
  size_t most() const { return most_; }
  int64_t died() const { return died_; }
  const std::set<int64_t>& closed() const { return closed_; }  // by the learner, while it ran
  // The clock of the learner: each look takes a while, but for those at which a process computes.
  std::chrono::steady_clock::time_point now() const {
    return std::chrono::steady_clock::time_point(std::chrono::milliseconds(20 * looks_));
  }
  // Frames of this connection do not arrive any more, in either direction.
  void Silence(int64_t connection) { processes_.at(connection)->silent = true; }

  std::string Description() const override { return "fake"; }
  void Trust(int64_t connection, size_t most_bytes) override {
    const auto process = processes_.find(connection);
    if (process != processes_.end()) process->second->most = most_bytes;
  }
  int64_t Arrived(int64_t connection) override {
    const auto process = processes_.find(connection);
    return process == processes_.end() ? 0 : process->second->arrived;
  }
  bool Idle() const override { return processes_.empty(); }
  void NotifyOnEvent(Wakeup* wakeup) override { wakeup_ = wakeup; }

  void Send(int64_t connection, Frame frame) override {
    if (frame.type == FrameType::kEnd && !std::exchange(ended_, true)) {
      for (int i = 0; i < join_at_end_; ++i) Join();
    }
    if (frame.type == FrameType::kRefused && refused_ != nullptr) {
      *refused_ = FromWire<std::string>(BytesOf(frame));
    }
    const auto process = processes_.find(connection);
    if (process != processes_.end() && !process->second->silent) {
      process->second->down.push_back(std::move(frame));
    }
  }

  void Close(int64_t connection) override {
    if (processes_.erase(connection) > 0) closed_.insert(connection);
  }

  std::optional<Event> Poll() override {
    // What computes takes real time, in which no time passes for the learner.
    const auto computes = [](const auto& process) { return !process.second->session->Idle(); };
    if (std::ranges::none_of(processes_, computes)) ++looks_;
    Require(looks_ < 10'000'000, "the learner has looked for what has happened without end");
    if (wakeup_ != nullptr) wakeup_->Notify();
    if (!ended_ && processes_.size() < chances_.most &&
        (Chance(chances_.join) || processes_.empty()))
      Join();
    if (Chance(chances_.die)) Die();
    for (int tries = 0; tries < 8 && events_.empty(); ++tries) MoveOne();
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  struct Process {
    Wakeup wakeup;
    std::deque<Frame> down;  // to the process
    std::deque<Frame> up;    // to the learner
    Mangle mangle;
    bool silent = false;
    int64_t arrived = 0;       // parts of answers
    size_t most = kPartBytes;  // that a frame of it may have
    std::unique_ptr<WorkerSession> session;
  };

  bool Chance(double probability) {
    return std::uniform_real_distribution<>(0, 1)(random_) < probability;
  }

  std::map<int64_t, std::unique_ptr<Process>>::iterator Any() {
    const auto steps = std::uniform_int_distribution<size_t>(0, processes_.size() - 1)(random_);
    return std::next(processes_.begin(), static_cast<std::ptrdiff_t>(steps));
  }

  // With what it has computed and not sent, or been sent and not taken.
  void Die() {
    if (processes_.empty()) return;
    const auto victim = Any();
    events_.push_back({.what = What::kClosed, .connection = victim->first, .text = "killed"});
    processes_.erase(victim);
    ++died_;
  }

  // A frame of some process, up or down.
  void MoveOne() {
    if (processes_.empty()) return;
    const auto found = Any();
    Process& process = *found->second;
    if (Chance(0.5)) {
      if (process.down.empty()) return;
      const Frame frame = std::move(process.down.front());
      process.down.pop_front();
      if (frame.type == FrameType::kEnd) {
        if (ends_ != nullptr) ends_->push_back(FromWire<std::string>(BytesOf(frame)));
        events_.push_back({.what = What::kClosed, .connection = found->first, .text = "left"});
        processes_.erase(found);
        return;
      }
      Handle(&process, frame);
    } else if (!process.up.empty() && !process.silent) {
      if (process.up.front().type == FrameType::kAnswer && ++process.arrived % parts_ != 0) return;
      Frame frame = std::move(process.up.front());
      process.up.pop_front();
      Require(BytesOf(frame).size() <= process.most, "a frame has {} bytes, {} are allowed",
              BytesOf(frame).size(), process.most);
      largest_ = std::max(largest_, BytesOf(frame).size());
      most_ = std::max(most_, process.most);
      if (process.mangle) process.mangle(&frame);
      events_.push_back(
          {.what = What::kFrame, .connection = found->first, .frame = std::move(frame)});
    }
  }

  void Handle(Process* process, const Frame& frame) const {
    switch (frame.type) {
      case FrameType::kWelcome:
        process->up.push_back(
            {.type = FrameType::kEquipped,
             .body = MakeBody(ToWire(
                 Equipment{.hello = {.host = "here",
                                     .version = "test",
                                     .isa = CurrentIsa(),
                                     .device = "cpu",
                                     .config = FromWire<Welcome>(BytesOf(frame)).config}}))});
        break;
      case FrameType::kPulse:
        process->up.push_back({.type = FrameType::kPulse});
        break;
      default:
        process->session->Handle(frame);
        while (!process->session->Idle()) {
          if (!process->session->Poll()) process->wakeup.WaitFor(std::chrono::milliseconds(10));
        }
    }
  }

  const Experiment* experiment_;
  Chances chances_;
  std::mt19937_64 random_;
  std::map<int64_t, std::unique_ptr<Process>> processes_;
  std::deque<Event> events_;
  std::set<int64_t> closed_;
  int64_t joined_ = 0;
  int64_t died_ = 0;
  size_t largest_ = 0;
  size_t most_ = 0;
  int64_t parts_ = 1;
  int64_t looks_ = 0;
  bool ended_ = false;
  std::string token_;
  std::string* refused_ = nullptr;
  int join_at_end_ = 0;
  std::vector<std::string>* ends_ = nullptr;
  Wakeup* wakeup_ = nullptr;
};

MetaTrainConfig Gathered(MetaTrainConfig config) {
  config.gather_checkpoints = true;
  return config;
}

double SecondsOf(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

struct ElasticRun {
  MetaTrainResult result;
  LeaseCounts counts;
};

// Runs the config with these connections.
ElasticRun RunElastic(const MetaTrainConfig& config, std::unique_ptr<FakeConnections> connections,
                      int64_t snapshot_updates, MetaTrainerOptions options = {},
                      const std::string& token = "") {
  options.version = "test";
  options.learner_only = true;
  const FakeConnections* fake = connections.get();
  ElasticTransport transport(
      config, options,
      {.snapshot_updates = snapshot_updates, .token = token, .now = [fake] { return fake->now(); }},
      std::move(connections));
  options.transport = &transport;
  options.on_experiment = [&](const Experiment& made) { transport.Know(made); };
  MetaTrainResult result = RunMetaTraining(config, options);
  return {.result = std::move(result), .counts = transport.counts()};
}

TEST_CASE("Processes that come, go and die in any order give the bits of one process") {
  int64_t deaths = 0;
  int64_t again = 0;
  for (const auto& experiment : {SmallExperiment(5, 9), LastingExperiment(5, 9)}) {
    const MetaTrainConfig config = Gathered(experiment);
    const TempDirectory one;
    MetaTrainerOptions options{.out_dir = one.path(), .version = "test"};
    RunMetaTraining(config, options);
    const Experiment shared(config, nullptr);
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      CAPTURE(seed);
      const TempDirectory many;
      auto connections = std::make_unique<FakeConnections>(
          &shared, seed, Chances{.join = 0.02, .die = 0.012 * static_cast<double>(seed % 4)});
      FakeConnections* const fake = connections.get();
      int64_t died = 0;
      options = {.out_dir = many.path()};
      options.on_step = [&](const MetaTrainProgress&) { died = fake->died(); };
      const ElasticRun run =
          RunElastic(config, std::move(connections), static_cast<int64_t>(1 + seed % 5), options);
      CHECK_EQ(FinalTheta(many.path()), FinalTheta(one.path()));
      CHECK_EQ(MetricsLines(many.path()), MetricsLines(one.path()));
      CHECK_EQ(run.counts.handed_out, 5 * 9);
      deaths += died;
      again += run.counts.again;
    }
  }
  CHECK_GT(deaths, 20);
  CHECK_GT(again, 20);
}

TEST_CASE("A run with processes that come and go is resumed by one process, and the reverse") {
  const MetaTrainConfig config = Gathered(SmallExperiment(3, 12));
  MetaTrainConfig half = config;
  half.meta_steps = 6;
  const MetaTrainResult whole = RunMetaTraining(config, {});
  const Experiment shared(config, nullptr);
  const auto connections = [&] {
    return std::make_unique<FakeConnections>(&shared, 3, Chances{.join = 0.02, .die = 0.005});
  };
  const TempDirectory first;
  RunElastic(half, connections(), 3, {.out_dir = first.path()});
  const MetaTrainerOptions resume{.out_dir = first.path(), .resume = true, .version = "test"};
  CHECK_EQ(RunMetaTraining(config, resume).learner.theta, whole.learner.theta);
  const TempDirectory second;
  RunMetaTraining(half, {.out_dir = second.path(), .version = "test"});
  CHECK_EQ(RunElastic(config, connections(), 3, {.out_dir = second.path(), .resume = true})
               .result.learner.theta,
           whole.learner.theta);
}

TEST_CASE("Asynchronous updates take what comes, and every inner step is accounted for") {
  MetaTrainConfig config = Gathered(SmallExperiment(4, 20));
  config.mode = WriteOptions("Async", AsyncOptions{.batch_size = 3});
  config.estimators.resize(1);
  const Experiment shared(config, nullptr);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const TempDirectory directory;
    const ElasticRun run = RunElastic(
        config,
        std::make_unique<FakeConnections>(&shared, seed, Chances{.join = 0.02, .die = 0.005}), 2,
        {.out_dir = directory.path()});
    const auto checkpoint = CheckpointStore(directory / "checkpoints", {}).ReadNewest();
    int64_t windows = 0;
    for (const WorkerState& worker : checkpoint->workers) windows += worker.windows;
    CHECK_EQ(checkpoint->ledger.Total().Total(), windows * 60);
    CHECK_EQ(checkpoint->ledger.Total()[Outcome::kUsed], 20 * 3 * 120);
  }
}

TEST_CASE("A process that is silent loses its leases") {
  MetaTrainConfig config = Gathered(SmallExperiment(3, 8));
  config.worker_timeout_seconds = 1;
  const Experiment shared(config, nullptr);
  auto connections = std::make_unique<FakeConnections>(&shared, 5, Chances{});
  connections->Join();
  connections->Join();
  FakeConnections* const fake = connections.get();
  MetaTrainerOptions options;
  options.on_step = [&](const MetaTrainProgress& step) {
    if (step.updates == 3) fake->Silence(1);
    if (step.updates == 5) CHECK(fake->closed().contains(1));
  };
  const ElasticRun run = RunElastic(config, std::move(connections), 2, options);
  CHECK_EQ(run.result.learner.theta, RunMetaTraining(config, {}).learner.theta);
}

TEST_CASE("An answer that takes longer than all timeouts arrives, as long as some of it does") {
  MetaTrainConfig config = Gathered(SmallExperiment(2, 4));
  config.worker_timeout_seconds = 1;
  config.progress_timeout_seconds = 2;
  const Experiment shared(config, nullptr);
  auto connections = std::make_unique<FakeConnections>(&shared, 5, Chances{});
  connections->Join();
  connections->SetParts(1500);
  FakeConnections* const fake = connections.get();
  MetaTrainerOptions options;
  std::vector<double> seconds;
  options.on_step = [&](const MetaTrainProgress&) {
    seconds.push_back(SecondsOf(fake->now()));
    CHECK(fake->closed().empty());
  };
  const ElasticRun run = RunElastic(config, std::move(connections), 2, options);
  CHECK_EQ(run.result.learner.theta, RunMetaTraining(config, {}).learner.theta);
  CHECK_GT(seconds[1] - seconds[0], 4);
}

TEST_CASE("A process that gives signs of life, or of progress, and no answer loses its leases") {
  MetaTrainConfig config = Gathered(SmallExperiment(3, 8));
  config.progress_timeout_seconds = 20;
  const Experiment shared(config, nullptr);
  for (const bool gets_on : {false, true}) {
    CAPTURE(gets_on);
    auto connections = std::make_unique<FakeConnections>(&shared, 5, Chances{});
    connections->Join();
    FakeConnections* const fake = connections.get();
    int64_t progress = 0;
    const auto mute = [&](Frame* frame) {
      const bool answer = frame->type == FrameType::kAnswer;
      if (!answer && (!gets_on || frame->type != FrameType::kPulse)) return;
      *frame = {.type = FrameType::kPulse,
                .body = gets_on ? MakeBody(ToWire(++progress)) : nullptr};
    };
    double seconds = 0;
    MetaTrainerOptions options;
    options.on_step = [&](const MetaTrainProgress& step) {
      if (step.updates == 3) {
        fake->Join(mute);
        seconds = SecondsOf(fake->now());
      }
      if (step.updates == 8) {
        CHECK(fake->closed() == std::set<int64_t>{2});
        seconds = SecondsOf(fake->now()) - seconds;
      }
    };
    const ElasticRun run = RunElastic(config, std::move(connections), 2, options);
    CHECK_EQ(run.result.learner.theta, RunMetaTraining(config, {}).learner.theta);
    // The deadline, or ten times that, and some looks for the rest of the run.
    const double deadline = gets_on ? 200 : 20;
    CHECK_GT(seconds, deadline);
    CHECK_LT(seconds, deadline + 30);
  }
}

TEST_CASE("A process that answers for some workers and never for another loses its leases") {
  MetaTrainConfig config = Gathered(SmallExperiment(3, 1500));
  config.estimators = {config.estimators[2]};
  config.mode = WriteOptions("Async", AsyncOptions{.batch_size = 1});
  config.progress_timeout_seconds = 2;
  const Experiment shared(config, nullptr);
  auto connections = std::make_unique<FakeConnections>(&shared, 5, Chances{});
  connections->Join([](Frame* frame) {
    if (frame->type == FrameType::kAnswer && frame->kind == kGradients && frame->lease == 1) {
      *frame = {.type = FrameType::kPulse};
    }
  });
  FakeConnections* const fake = connections.get();
  MetaTrainerOptions options;
  int64_t updates = 0;
  options.on_step = [&](const MetaTrainProgress& step) {
    if (updates == 0 && fake->closed().contains(1)) updates = step.updates;
  };
  CHECK_EQ(RunElastic(config, std::move(connections), 2, options).result.learner.outer_step, 1500);
  CHECK_GT(updates, 0);
}

// Tells every `every`-th of the lies.
void RefuseLies(size_t every) {
  const MetaTrainConfig config = Gathered(SmallExperiment(2, 6));
  const Experiment shared(config, nullptr);
  const MetaTrainResult one = RunMetaTraining(config, {});
  const std::vector<ElasticLie> lies = ElasticLies();
  for (size_t i = 0; i < lies.size(); i += every) {
    const ElasticLie& lie = lies[i];
    CAPTURE(lie.name);
    auto connections = std::make_unique<FakeConnections>(&shared, 5, Chances{});
    // An honest one whose states are known is there from the beginning, but for the lies about all.
    connections->Join();
    FakeConnections* const fake = connections.get();
    MetaTrainerOptions options;
    options.on_step = [&](const MetaTrainProgress& step) {
      if (step.updates == 2) fake->Join(lie.mangle);
      if (step.updates == 6) CHECK(fake->closed() == std::set<int64_t>{2});
    };
    const ElasticRun run = RunElastic(config, std::move(connections), 1, options);
    CHECK_EQ(run.result.learner.theta, one.learner.theta);
  }
}

TEST_CASE(
    "What no worker of the run would send is refused, and the job goes on: every fourth lie") {
  RefuseLies(4);
}

TEST_CASE("What no worker of the run would send is refused, and the job goes on with its bits" *
          doctest::test_suite("nightly")) {
  RefuseLies(1);
}

// Runs with a process whose frames are right and, from update to update, one more whose frames are
// mutated; returns how many the learner closed.
int64_t RunBesideMutants(const MetaTrainConfig& config, uint64_t seed, const std::string& out_dir) {
  const Experiment shared(config, nullptr);
  auto connections = std::make_unique<FakeConnections>(&shared, seed, Chances{});
  connections->Join();
  FakeConnections* const fake = connections.get();
  std::mt19937_64 random(seed);
  MetaTrainerOptions options{.out_dir = out_dir};
  options.on_step = [&](const MetaTrainProgress&) { fake->Join(MutateSome(&random, 0.15, false)); };
  int64_t closed = 0;
  options.on_metrics = [&](int64_t, const Metrics&) { closed = std::ssize(fake->closed()); };
  RunElastic(config, std::move(connections), 2, options);
  return closed;
}

TEST_CASE("Processes that send mutated frames are refused, and the job goes on with its bits") {
  int64_t closed = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    MetaTrainConfig config =
        Gathered(seed % 2 == 0 ? SmallExperiment(3, 20) : LastingExperiment(3, 20));
    config.progress_timeout_seconds = 20;
    if (seed % 3 == 1) config.gradient_sum = GradientSum::kTree;
    if (seed % 3 == 2) config.weighting = Weighting::kEqualNorm;
    if (seed > 4) config.estimators_per_worker = 1;
    const TempDirectory many;
    const TempDirectory one;
    closed += RunBesideMutants(config, seed, many.path());
    RunMetaTraining(config, {.out_dir = one.path(), .version = "test"});
    CHECK_EQ(FinalTheta(many.path()), FinalTheta(one.path()));
  }
  CHECK_GT(closed, 50);
}

TEST_CASE("Processes that send mutated frames do not end asynchronous updates") {
  int64_t closed = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    MetaTrainConfig config = Gathered(SmallExperiment(3, 20));
    config.progress_timeout_seconds = 20;
    config.mode = WriteOptions("Async", AsyncOptions{.batch_size = 2});
    const TempDirectory directory;
    closed += RunBesideMutants(config, seed, directory.path());
  }
  CHECK_GT(closed, 15);
}

// Passes on what it is given, but one message of gradients is damaged behind all checks.
class DamagingTransport final : public Transport {
 public:
  explicit DamagingTransport(ElasticTransport* inner) : inner_(inner) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int ranks_on_host() const override { return inner_->ranks_on_host(); }
  int rank_on_host() const override { return inner_->rank_on_host(); }
  std::string Description() const override { return inner_->Description(); }
  void Send(int to, int kind, std::vector<std::byte> bytes) override {
    inner_->Send(to, kind, std::move(bytes));
  }
  std::optional<Message> Poll() override {
    std::optional<Message> message = inner_->Poll();
    if (message && message->kind == kGradients && ++gradients_ == 4) message->bytes.resize(9);
    return message;
  }
  void BeginFarewell() override { inner_->BeginFarewell(); }
  bool FarewellDone() override { return inner_->FarewellDone(); }
  bool NotifyOnArrival(Wakeup* wakeup) override { return inner_->NotifyOnArrival(wakeup); }
  bool RefuseAnswer(int from, const std::string& why) override {
    return inner_->RefuseAnswer(from, why);
  }
  int Exit(int exit_code) override { return inner_->Exit(exit_code); }

 private:
  void DoAbort(int exit_code) override { inner_->Abort(exit_code); }

  ElasticTransport* inner_;
  int64_t gradients_ = 0;
};

TEST_CASE("An answer at which the learner itself fails is refused, and another gives it again") {
  const MetaTrainConfig config = Gathered(SmallExperiment(2, 6));
  const Experiment shared(config, nullptr);
  auto connections = std::make_unique<FakeConnections>(&shared, 3, Chances{});
  connections->Join();
  const FakeConnections* const fake = connections.get();
  MetaTrainerOptions options{.version = "test", .learner_only = true};
  ElasticTransport elastic(config, options,
                           {.snapshot_updates = 3, .now = [fake] { return fake->now(); }},
                           std::move(connections));
  DamagingTransport transport(&elastic);
  options.transport = &transport;
  options.on_experiment = [&](const Experiment& made) { elastic.Know(made); };
  std::set<int64_t> closed;
  options.on_step = [&](const MetaTrainProgress&) { closed = fake->closed(); };
  CHECK_EQ(RunMetaTraining(config, options).learner.theta,
           RunMetaTraining(config, {}).learner.theta);
  CHECK(closed == std::set<int64_t>{1});
}

TEST_CASE("What a worker's states must be like is known without its burn-in") {
  MetaTrainConfig config = LastingExperiment(2, 2);
  const auto with_burn_in = [&](const std::string& steps) {
    config.estimators[0] = config.estimators[0].With("burn_in", steps);
    return config;
  };
  const std::vector<AnswerRules> rules = RulesOf(Experiment(with_burn_in("10000000")));
  const Experiment fresh(with_burn_in("0"));
  const WorkerWeights weights =
      fresh.learner.GetStateForWorker(fresh.learner.Init(ThetaKey(fresh.run_key)));
  const LogicalWorker& worker = fresh.workers[1];
  WorkerState state = InitWorkerState(weights, worker.estimators, worker.key);
  const auto read = [&] {
    int64_t windows = -1;
    PackWorkers(1, std::span(&state, 1),
                [&](const WorkerBlock&, const std::vector<std::byte>& bytes) {
                  windows = rules[1].ReadStates(bytes);
                });
    return windows;
  };
  CHECK(read() == 0);
  state.estimators[0].Set("felt", Array(DType::kFloat32, {1}));
  CHECK(ErrorOf(read) ==
        "the states of worker 1 have other arrays or shapes than its estimators make");
}

TEST_CASE("A frame may have as many bytes as an answer needs, and not many more") {
  for (const bool apart : {false, true}) {
    for (const int64_t hidden : {8, 600}) {
      MetaTrainConfig config = Gathered(SmallExperiment(2, 4));
      config.learned_optimizer =
          config.learned_optimizer.With("hidden_size", std::to_string(hidden));
      if (apart) config.weighting = Weighting::kEqualNorm;
      const Experiment shared(config, nullptr);
      auto connections = std::make_unique<FakeConnections>(&shared, 5, Chances{});
      connections->Join();
      FakeConnections* const fake = connections.get();
      MetaTrainerOptions options;
      size_t largest = 0;
      size_t most = 0;
      options.on_step = [&](const MetaTrainProgress&) {
        largest = fake->largest();
        most = fake->most();
      };
      RunElastic(config, std::move(connections), 1, options);
      CHECK_LE(largest, most);
      // 10,000 diagnostics of each of three estimators.
      CHECK_LE(most, largest + 8'000'000);
      if (hidden == 600) {
        const auto theta = static_cast<size_t>(shared.optimizer->theta_layout().size());
        CHECK_GT(most, 4 * theta * (apart ? 4 : 1));
      }
    }
  }
}

// What is logged while it lives.
class LogTaker {
 public:
  LogTaker() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
  }
  ~LogTaker() { spdlog::set_default_logger(before_); }
  LogTaker(const LogTaker&) = delete;
  LogTaker& operator=(const LogTaker&) = delete;
  std::string text() const { return log_.str(); }

 private:
  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST_CASE("Strangers write neither lines of their own into the log nor much of it") {
  const MetaTrainConfig config = Gathered(SmallExperiment(2, 6));
  const Experiment shared(config, nullptr);
  auto connections = std::make_unique<FakeConnections>(&shared, 5, Chances{});
  connections->Join();
  FakeConnections* const fake = connections.get();
  const std::string forged = "\x1b[2K\n[info] worker process 1 (here) has joined; 9 are there\n";
  MetaTrainerOptions options;
  double seconds = 0;
  options.on_step = [&](const MetaTrainProgress& step) {
    seconds = SecondsOf(fake->now());
    for (int i = 0; step.updates == 2 && i < 1000; ++i) {
      fake->Join(ChangeFrames<JoinRequest>(FrameType::kJoin, [&](JoinRequest* request) {
        request->version = forged + std::string(50000, 'x');
      }));
      fake->Join([](Frame* frame) { *frame = {.type = FrameType::kAnswer, .kind = kGradients}; });
    }
  };
  const LogTaker log;
  RunElastic(config, std::move(connections), 1, options);
  const std::string text = log.text();
  CHECK(text.find("; 9 are there\n") == std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find(R"(: '\x1b[2K\x0a[info] worker process 1 (here) has joined; 9 are there\x0a)") !=
        std::string::npos);
  CHECK(text.find(" more lines like these are left out\n") != std::string::npos);
  // 4 KiB a second and, of each line, when it was written.
  CHECK_LT(text.size(), 2 * 4096 * (seconds + 2));
}

TEST_CASE("A stranger is told no version of the program, who says the token is") {
  const MetaTrainConfig config = Gathered(SmallExperiment(2, 6));
  const Experiment shared(config, nullptr);
  const auto told = [&](const std::string& token, const std::string& said) {
    auto connections = std::make_unique<FakeConnections>(&shared, 5, Chances{});
    FakeConnections* const fake = connections.get();
    std::string refused;
    fake->UseToken(token);
    fake->NoteRefusalsIn(&refused);
    fake->Join(ChangeFrames<JoinRequest>(FrameType::kJoin, [&](JoinRequest* request) {
      request->version = "older";
      request->token = said;
    }));
    RunElastic(config, std::move(connections), 1, {}, token);
    return refused;
  };
  CHECK_EQ(told("", ""), "it runs another version of the program than the learner");
  CHECK_EQ(told("sesame", "wheat"), "it does not say the token of this job (--token-file)");
  CHECK_EQ(told("", "wheat"), "it says a token, and this job has none (--insecure)");
  CHECK_EQ(told("sesame", "sesame"),
           "it runs another version of the program than the learner: 'older' there, 'test' here");
}

TEST_CASE("All who are there at the end, or come just then, hear that the run has finished") {
  const MetaTrainConfig config = Gathered(SmallExperiment(3, 4));
  const Experiment shared(config, nullptr);
  for (const bool token : {false, true}) {
    auto connections = std::make_unique<FakeConnections>(&shared, 5, Chances{});
    FakeConnections* const fake = connections.get();
    std::vector<std::string> ends;
    if (token) fake->UseToken("sesame");
    fake->JoinAtEnd(2, &ends);
    for (int i = 0; i < 3; ++i) fake->Join();
    RunElastic(config, std::move(connections), 2, {}, token ? "sesame" : "");
    CHECK_EQ(ends, std::vector<std::string>(5, "finished"));
  }
}

TEST_CASE("Who comes at the end without the token is not told how the run has ended") {
  const MetaTrainConfig config = Gathered(SmallExperiment(3, 4));
  const Experiment shared(config, nullptr);
  auto connections = std::make_unique<FakeConnections>(&shared, 5, Chances{});
  FakeConnections* const fake = connections.get();
  std::vector<std::string> ends;
  std::string refused;
  fake->UseToken("sesame");
  fake->JoinAtEnd(2, &ends);
  fake->NoteRefusalsIn(&refused);
  fake->Join();
  MetaTrainerOptions options;
  options.on_step = [&](const MetaTrainProgress& step) {
    if (step.updates == 3) fake->UseToken("wheat");
  };
  RunElastic(config, std::move(connections), 2, options, "sesame");
  CHECK_EQ(ends, std::vector<std::string>{"finished"});
  CHECK_EQ(refused, "it does not say the token of this job (--token-file)");
}

// What a worker process connects to. It says what it is told to, and nothing else; each look at it
// takes a second of the worker's clock.
class MuteLearner final : public LikeSystemEnvironment {
 public:
  std::chrono::steady_clock::time_point Now() override { return begin_ + seconds; }

  std::chrono::seconds seconds{0};
  std::deque<Frame> says;
  size_t most = 0;  // bytes of a frame that it may send
  std::atomic<bool> stop = false;

 private:
  std::chrono::steady_clock::time_point begin_ = System().Now();
};

class MuteConnection final : public Connections {
 public:
  explicit MuteConnection(MuteLearner* learner) : learner_(learner) {}

  std::string Description() const override { return "mute"; }
  std::optional<Event> Poll() override {
    learner_->stop = ++learner_->seconds >= std::chrono::hours(1);
    if (wakeup_ != nullptr) wakeup_->Notify();
    if (learner_->says.empty()) return std::nullopt;
    Frame frame = std::move(learner_->says.front());
    learner_->says.pop_front();
    return Event{.connection = 1, .frame = std::move(frame)};
  }
  void Send(int64_t, Frame) override {}
  void Trust(int64_t, size_t most_bytes) override { learner_->most = most_bytes; }
  int64_t Arrived(int64_t) override { return 0; }
  void Close(int64_t) override {}
  bool Idle() const override { return true; }
  void NotifyOnEvent(Wakeup* wakeup) override { wakeup_ = wakeup; }

 private:
  MuteLearner* learner_;
  Wakeup* wakeup_ = nullptr;
};

TEST_CASE("A worker has patience with what says nothing, unless something else watches it") {
  const auto wait = [](double patience, bool watched) {
    MuteLearner learner;
    const InEnvironment inside(&learner);
    const ElasticWorkerOptions options{
        .stop = &learner.stop, .patience_seconds = patience, .learner_is_watched = watched};
    const std::string error = ErrorOf([&] {
      RunElasticWorker(options, [&] { return std::make_unique<MuteConnection>(&learner); });
    });
    return std::pair(error, learner.seconds.count());
  };
  const std::string silent = "there is no learner any more: it says nothing";
  CHECK_EQ(wait(60, false), std::pair(silent, std::chrono::seconds::rep{61}));
  CHECK_EQ(wait(0, false), std::pair(silent, std::chrono::seconds::rep{11}));
  CHECK_EQ(wait(60, true), std::pair(std::string("no error"), std::chrono::seconds::rep{3600}));
}

TEST_CASE("A worker takes states of any length from a learner that has welcomed it") {
  MuteLearner learner;
  const InEnvironment inside(&learner);
  learner.says.push_back(
      {.type = FrameType::kWelcome, .body = MakeBody(ToWire(Welcome{.config = "no config"}))});
  CHECK(ErrorOf([&] {
          RunElasticWorker({}, [&] { return std::make_unique<MuteConnection>(&learner); });
        }).starts_with("the learner's config"));
  CHECK_GT(learner.most, size_t{1} << 40);
}

TEST_CASE("A worker takes the GPU of its place on its host") {
  MetaTrainConfig config = SmallExperiment(1);
  config.device = "cuda";
  MuteLearner learner;
  const InEnvironment inside(&learner);
  learner.says.push_back(
      {.type = FrameType::kWelcome,
       .body = MakeBody(ToWire(Welcome{.config = WriteOptions("", config).Dump()}))});
  CHECK(ErrorOf([&] {
          RunElasticWorker({.gpus = {31415, 2718}, .place_on_host = 1},
                           [&] { return std::make_unique<MuteConnection>(&learner); });
        }).starts_with("device: there is no 'cuda:2718'"));
}

TEST_CASE("A learner that goes on from windows on a device refuses workers on another") {
  const MetaTrainConfig config = Gathered(SmallExperiment(2));
  const Experiment shared(config, nullptr);
  auto connections = std::make_unique<FakeConnections>(&shared, 5, Chances{.most = 0});
  FakeConnections* const fake = connections.get();
  std::string refused;
  fake->NoteRefusalsIn(&refused);
  ElasticTransport transport(config, {.version = "test", .learner_only = true}, {},
                             std::move(connections));
  Hello hello{.host = "here",
              .version = "test",
              .isa = CurrentIsa(),
              .config = WriteOptions("", config).Dump()};
  transport.Send(0, kHello, ToWire(hello));
  hello.device = "emulated";
  transport.Send(0, kHello, ToWire(hello));  // as Ranks::ExpectDevice does
  fake->Join();
  for (int i = 0; i < 100'000 && refused.empty(); ++i) transport.Poll();
  CHECK(
      refused.starts_with("the windows of process 0 on here run on the device cpu, those of the "
                          "run on emulated, so "));
}

TEST_CASE("The job begins when so many processes are there as it waits for") {
  const MetaTrainConfig config = Gathered(SmallExperiment(2, 2));
  const Experiment shared(config, nullptr);
  auto connections = std::make_unique<FakeConnections>(&shared, 1, Chances{.join = 0.01});
  FakeConnections* const fake = connections.get();
  MetaTrainerOptions options{.version = "test", .learner_only = true};
  ElasticTransport transport(config, options,
                             {.wait_for = 3, .now = [fake] { return fake->now(); }},
                             std::move(connections));
  options.transport = &transport;
  options.on_experiment = [&](const Experiment& made) { transport.Know(made); };
  options.on_step = [&](const MetaTrainProgress&) { CHECK_GE(transport.workers(), 3); };
  CHECK_EQ(RunMetaTraining(config, options).learner.outer_step, 2);
}

TEST_CASE("A job that waits so long for processes that are refused, or have gone, is an error") {
  const MetaTrainConfig config = Gathered(SmallExperiment(2, 6));
  const Experiment shared(config, nullptr);
  const auto error = [&](int64_t wait_for, bool refused) {
    auto connections = std::make_unique<FakeConnections>(&shared, 1, Chances{.most = 0});
    FakeConnections* const fake = connections.get();
    fake->Join();
    if (refused) {
      fake->Join(ChangeFrames<JoinRequest>(FrameType::kJoin,
                                           [](JoinRequest* join) { join->version = "older"; }));
    }
    MetaTrainerOptions options{.version = "test", .learner_only = true};
    ElasticTransport transport(
        config, options,
        {.wait_for = wait_for, .wait_seconds = 30, .now = [fake] { return fake->now(); }},
        std::move(connections));
    options.transport = &transport;
    options.on_experiment = [&](const Experiment& made) { transport.Know(made); };
    options.on_step = [&](const MetaTrainProgress& step) {
      if (step.updates == 2) fake->Silence(1);
    };
    const std::string message = ErrorOf([&] { RunMetaTraining(config, options); });
    CHECK_GE(SecondsOf(fake->now()), 30);
    return message;
  };
  const std::string named = "; the log names those that were refused or have failed";
  CHECK_EQ(error(2, true), "waited 30 s for workers on fake: 1 of 2 are there" + named);
  CHECK_EQ(error(1, false), "waited 30 s for workers on fake: none are there" + named);
}

TEST_CASE("An elastic learner wants checkpoints that are gathered and a sensible interval") {
  const MetaTrainConfig config = SmallExperiment(2, 2);
  const auto error = [](const MetaTrainConfig& from, ElasticOptions options) {
    return ErrorOf([&] { ElasticTransport(from, {}, std::move(options), nullptr); });
  };
  CHECK_EQ(error(config, {}), "elastic workers send their states: set gather_checkpoints");
  CHECK_EQ(error(Gathered(config), {.snapshot_updates = 0}),
           "snapshot_updates must be at least 1, got 0");
}

}  // namespace
}  // namespace lopt
