#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/learner/elastic/carrier.h"
#include "lopt/learner/elastic/elastic_transport.h"
#include "lopt/learner/elastic/frame_parts.h"
#include "lopt/learner/elastic/worker_process.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "tests/error_of.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"

// A learner and workers whose frames this test carries from one thread to another.

namespace lopt {
namespace {

using Event = Connections::Event;
using What = Event::What;

std::vector<std::byte> Bytes(size_t size) { return std::vector<std::byte>(size); }

// A worker process, but for the process.
class CarriedWorker {
 public:
  CarriedWorker(Carrier* learner, std::string version, std::optional<std::string> device)
      : learner_(learner),
        options_{
            .version = std::move(version), .device = std::move(device), .patience_seconds = 0} {
    connection_ = learner->Open("a worker of the test");
    working_ = std::thread([this] {
      error_ = ErrorOf([&] { RunElasticWorker(options_, [&] { return JoinCarried(carrier_); }); });
    });
    carrying_ = std::thread([this] {
      for (auto errands = carrier_->Take(); !errands.empty(); errands = carrier_->Take()) {
        for (const Carrier::Errand& errand : errands) {
          if (errand.frame) learner_->HandIn(connection_, *errand.frame);
        }
      }
      learner_->End(connection_, "it has left");
    });
  }
  ~CarriedWorker() {
    carrier_->End(1, "the test has ended");
    Join();
  }
  CarriedWorker(const CarriedWorker&) = delete;
  CarriedWorker& operator=(const CarriedWorker&) = delete;

  // As the learner gives them; none: it has ended the connection.
  void Deliver(const Carrier::Errand& errand) {
    errand.frame ? carrier_->HandIn(1, *errand.frame) : carrier_->End(1, "the learner has closed");
  }
  // Nothing comes or goes any more, as where its process was killed.
  void Kill() {
    learner_->End(connection_, "killed");
    carrier_->End(1, "killed");
  }
  // What has ended it.
  std::string Join() {
    if (working_.joinable()) working_.join();
    if (carrying_.joinable()) carrying_.join();
    return error_;
  }

 private:
  Carrier* learner_;
  ElasticWorkerOptions options_;
  std::shared_ptr<Carrier> carrier_ = std::make_shared<Carrier>("the test");
  int64_t connection_ = 0;
  std::string error_;
  std::thread working_;
  std::thread carrying_;
};

// Workers by their connections, numbered from 1.
class CarriedWorkers {
 public:
  explicit CarriedWorkers(std::shared_ptr<Carrier> learner)
      : learner_(std::move(learner)), carrying_([this] { Carry(); }) {}
  ~CarriedWorkers() {
    learner_->Close();
    carrying_.join();
  }
  CarriedWorkers(const CarriedWorkers&) = delete;
  CarriedWorkers& operator=(const CarriedWorkers&) = delete;

  void Add(const std::string& version = "test", std::optional<std::string> device = {}) {
    const std::lock_guard lock(mutex_);
    workers_.push_back(std::make_unique<CarriedWorker>(learner_.get(), version, std::move(device)));
  }
  CarriedWorker& operator[](size_t connection) {
    const std::lock_guard lock(mutex_);
    return *workers_[connection - 1];
  }

 private:
  void Carry() {
    for (auto errands = learner_->Take(); !errands.empty(); errands = learner_->Take()) {
      for (const Carrier::Errand& errand : errands) {
        (*this)[static_cast<size_t>(errand.connection)].Deliver(errand);
      }
    }
  }

  std::shared_ptr<Carrier> learner_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<CarriedWorker>> workers_;
  std::thread carrying_;
};

MetaTrainConfig Gathered(MetaTrainConfig config) {
  config.gather_checkpoints = true;
  return config;
}

MetaTrainResult RunCarried(const MetaTrainConfig& config, const std::shared_ptr<Carrier>& carrier,
                           MetaTrainerOptions options = {}, int64_t wait_for = 0) {
  options.version = "test";
  options.learner_only = true;
  ElasticTransport transport(config, options, {.wait_for = wait_for, .stop = options.stop},
                             ListenCarried(carrier));
  options.transport = &transport;
  options.on_experiment = [&](const Experiment& made) { transport.Know(made); };
  return RunMetaTraining(config, options);
}

TEST_CASE("Workers whose frames are carried, one of which is killed, give one process's bits") {
  const MetaTrainConfig config = Gathered(SmallExperiment(3, 12));
  const auto carrier = std::make_shared<Carrier>("the test");
  CarriedWorkers workers(carrier);
  workers.Add();
  workers.Add();
  const MetaTrainerOptions options{.on_step = [&](const MetaTrainProgress& progress) {
    if (progress.updates == 4) workers[1].Kill();
    if (progress.updates == 6) workers.Add();
  }};
  const MetaTrainResult carried = RunCarried(config, carrier, options, 2);
  CHECK_EQ(carried.updates, 12);
  CHECK_EQ(carried.learner.theta, RunMetaTraining(config, {}).learner.theta);
  CHECK_EQ(workers[1].Join(), "there is no learner any more: killed");
  CHECK_EQ(workers[2].Join(), "no error");
}

TEST_CASE("A worker of another version is told so over a carrier") {
  const auto carrier = std::make_shared<Carrier>("the test");
  CarriedWorkers workers(carrier);
  workers.Add("other");
  workers.Add();
  RunCarried(Gathered(SmallExperiment(1, 2)), carrier);
  CHECK_EQ(workers[1].Join(),
           "the learner refuses this process: it runs another version of the program than the "
           "learner");
}

TEST_CASE("What the first worker runs its windows on is the device of a run") {
  MetaTrainConfig config = Gathered(SmallExperiment(2));
  config.estimators = {config.estimators[0], config.estimators[2]};
  const TempDirectory directory;
  const auto run = [&](int64_t steps, const std::string& device, int64_t wait_for) {
    config.meta_steps = steps;
    const auto carrier = std::make_shared<Carrier>("the test");
    CarriedWorkers workers(carrier);
    workers.Add("test", device);
    return RunCarried(config, carrier, {.out_dir = directory.path(), .resume = steps > 2},
                      wait_for);
  };
  for (const int64_t steps : {2, 4}) {
    const MetaTrainResult carried = run(steps, "emulated", 0);
    config.device = "emulated";
    CHECK_EQ(carried.learner.theta, RunMetaTraining(config, {}).learner.theta);
    config.device = "cpu";
    const RunDirectory files(directory.path());
    CHECK(files.ReadManifest().device == "emulated");
    CHECK(CheckpointStore(files.CheckpointPath(), {}).ReadNewest()->device == "emulated");
  }
  CHECK(ErrorOf([&] {
          run(5, "cpu", 1);
        }).find("its windows ran on the device emulated, those of this run now on cpu, ") !=
        std::string::npos);
}

TEST_CASE("What the carrier says ends the job") {
  const auto carrier = std::make_shared<Carrier>("the test");
  carrier->Fail("actor 7 has failed: no memory");
  carrier->Fail("actor 8 has failed");
  CHECK_EQ(ErrorOf([&] { RunCarried(Gathered(SmallExperiment(1)), carrier); }),
           "actor 7 has failed: no memory");
  CHECK(carrier->Take().empty());  // who carries hears of the end
}

TEST_CASE("What the carrier says comes too late once a worker was told how the job has ended") {
  const auto carrier = std::make_shared<Carrier>("the test");
  const auto learner = ListenCarried(carrier);
  carrier->Open("a worker");
  learner->Send(1, {.type = FrameType::kEnd});
  carrier->Fail("its actor has died");
  CHECK(learner->Poll()->what == What::kOpened);
}

TEST_CASE("A learner that is told to stop while no worker is there ends with StoppedAlone") {
  const std::atomic<bool> stop = true;
  CHECK_THROWS_AS(RunCarried(Gathered(SmallExperiment(1)), std::make_shared<Carrier>("the test"),
                             {.stop = &stop}),
                  StoppedAlone);
}

TEST_CASE("A run that was stopped while no worker is there is interrupted, not failed") {
  const TempDirectory directory;
  std::atomic<bool> stop = false;
  const auto carrier = std::make_shared<Carrier>("the test");
  CarriedWorkers workers(carrier);
  workers.Add();
  MetaTrainConfig config = Gathered(SmallExperiment(1));
  config.checkpoint_steps = 3;
  const MetaTrainerOptions options{.out_dir = directory.path(),
                                   .stop = &stop,
                                   .on_step = [&](const MetaTrainProgress& progress) {
                                     if (progress.updates != 5) return;
                                     workers[1].Kill();
                                     stop = true;
                                   }};
  CHECK_THROWS_AS(RunCarried(config, carrier, options), StoppedAlone);
  const RunManifest manifest = RunDirectory(directory.path()).ReadManifest();
  CHECK_EQ(manifest.status, "interrupted");
  CHECK_EQ(manifest.updates, 3);
  CHECK_FALSE(manifest.error.has_value());
}

TEST_CASE("Frames arrive as they were sent, between the opening and the end of a connection") {
  const auto above = std::make_shared<Carrier>("above");
  const auto below = std::make_shared<Carrier>("below");
  const auto learner = ListenCarried(above);
  auto worker = JoinCarried(below);
  CHECK_EQ(learner->Description(), "above");
  CHECK(!worker->Poll());
  CHECK_EQ(above->Open("a worker"), 1);
  const auto carry = [](Carrier* from, Carrier* to) {
    for (const Carrier::Errand& errand : from->Take()) {
      if (errand.frame) to->HandIn(1, *errand.frame);
    }
  };
  const FrameBody body = MakeBody({std::byte{3}, std::byte{1}});
  worker->Send(1, {.type = FrameType::kAnswer, .lease = 5, .kind = 2, .body = body});
  worker->Send(1, {.type = FrameType::kPulse});
  CHECK(!worker->Idle());
  carry(below.get(), above.get());
  const std::optional<Event> opened = learner->Poll();
  CHECK(opened->what == What::kOpened);
  CHECK_EQ(opened->peer, "a worker");
  const std::optional<Event> answer = learner->Poll();
  CHECK(answer->what == What::kFrame);
  CHECK_EQ(answer->connection, 1);
  CHECK(answer->frame.type == FrameType::kAnswer);
  CHECK_EQ(answer->frame.lease, 5);
  CHECK_EQ(answer->frame.kind, 2);
  CHECK(BytesOf(answer->frame) == *body);
  CHECK(learner->Poll()->frame.type == FrameType::kPulse);
  CHECK(!learner->Poll());

  // The learner may send frames of any length.
  learner->Send(1, {.type = FrameType::kWelcome, .body = MakeBody(Bytes(kPartBytes + 1))});
  carry(above.get(), below.get());
  CHECK_EQ(BytesOf(worker->Poll()->frame).size(), kPartBytes + 1);

  worker->Close(1);
  worker->Send(1, {.type = FrameType::kPulse});  // nothing comes of it
  CHECK_FALSE(worker->Idle());
  const std::vector<Carrier::Errand> last = below->Take();
  CHECK_EQ(last.size(), 1);
  CHECK_FALSE(last[0].frame.has_value());
  CHECK(worker->Idle());
  worker.reset();
  CHECK(below->Take().empty());

  above->End(1, "it has left");
  above->End(1, "again");
  const std::optional<Event> closed = learner->Poll();
  CHECK(closed->what == What::kClosed);
  CHECK_EQ(closed->text, "it has left");
  CHECK(!learner->Poll());
  CHECK(learner->Idle());
  CHECK_EQ(ErrorOf([&] { JoinCarried(above); }), "a carrier joins a learner once");
}

TEST_CASE("A frame that is damaged, or longer than a stranger's may be, ends its connection") {
  const auto above = std::make_shared<Carrier>("above");
  const auto below = std::make_shared<Carrier>("below");
  const auto learner = ListenCarried(above);
  const auto worker = JoinCarried(below);
  worker->Send(1, {.type = FrameType::kJoin, .body = MakeBody(Bytes(kPartBytes + 1))});
  const std::vector<std::byte> long_frame = *below->Take().at(0).frame;
  const auto refused = [&](const std::vector<std::byte>& frame) {
    const int64_t connection = above->Open("a worker");
    CHECK(learner->Poll()->what == What::kOpened);
    above->HandIn(connection, frame);
    above->HandIn(connection, frame);  // nothing comes of it
    const std::vector<Carrier::Errand> errands = above->Take();
    CHECK_EQ(errands.size(), 1);
    CHECK_EQ(errands.at(0).connection, connection);
    CHECK_FALSE(errands.at(0).frame.has_value());
    const std::optional<Event> closed = learner->Poll();
    CHECK(closed->what == What::kClosed);
    CHECK(!learner->Poll());
    return closed->text;
  };
  CHECK_EQ(refused(long_frame), "it sent a frame that is too long: it may have 61440 bytes");
  CHECK_EQ(refused({}), "a message from another rank is damaged: it ends in 'type'");
  const int64_t trusted = above->Open("a worker");
  learner->Trust(trusted, kPartBytes + 1);
  above->HandIn(trusted, long_frame);
  CHECK(learner->Poll()->what == What::kOpened);
  CHECK_EQ(BytesOf(learner->Poll()->frame).size(), kPartBytes + 1);
}

}  // namespace
}  // namespace lopt
