#include "lopt/tools/simulate/schedule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/record.h"
#include "lopt/base/strict_json.h"
#include "lopt/learner/elastic/elastic_transport.h"
#include "lopt/learner/elastic/worker_process.h"
#include "lopt/learner/job/message_loop.h"
#include "lopt/learner/job/messages.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/job/placement.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tools/simulate/disk.h"
#include "lopt/tools/simulate/lines.h"
#include "lopt/tools/simulate/lock_watch.h"
#include "lopt/tools/simulate/network.h"
#include "lopt/tools/simulate/process.h"
#include "lopt/tools/simulate/process_files.h"
#include "lopt/tools/simulate/quiet_log.h"
#include "lopt/tools/simulate/small_run.h"
#include "lopt/tools/simulate/world.h"

namespace lopt {
namespace {

using std::chrono::seconds;

constexpr int kMostRanks = 4;
// None after these dies.
constexpr int64_t kMostWorkers = 8;
constexpr int kMostFaultyAttempts = 3;
// A directory's lock may keep out so many attempts that nothing disturbs.
constexpr int kMostCalmAttempts = 8;
// An attempt that is not over by then hangs.
constexpr seconds kLongestAttempt{3600};
constexpr int64_t kMostSteps = 1'000'000;

// A rank of an attempt.
struct SimulatedRank {
  std::unique_ptr<Process> process;
  std::unique_ptr<ProcessFiles> files;
  std::unique_ptr<WatchedFiles> watched_files;  // of the learner
  std::unique_ptr<FileSystem> other_files;      // of a test
  std::atomic<bool> stop = false;
  int64_t points = 0;
  int64_t dies_at = std::numeric_limits<int64_t>::max();  // point
  int64_t stands_still_at = std::numeric_limits<int64_t>::max();
  int64_t fails_at = std::numeric_limits<int64_t>::max();  // call that writes or flushes
  int64_t writes = 0;
  int64_t flush_fails_at = std::numeric_limits<int64_t>::max();
  int64_t flushes = 0;
  std::optional<int64_t> points_after_failed_flush = {};  // until it dies
  std::string error;
};

// The learner's transport. It counts the windows that the messages with weights begin.
class LearnersTransport final : public Transport {
 public:
  LearnersTransport(Transport* transport, std::function<void(int to)> begins,
                    std::function<void(int exit_code)> abort)
      : transport_(transport), begins_(std::move(begins)), abort_(std::move(abort)) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  int ranks_on_host() const override { return transport_->ranks_on_host(); }
  int rank_on_host() const override { return transport_->rank_on_host(); }
  std::string Description() const override { return transport_->Description(); }
  void Send(int to, int kind, std::vector<std::byte> bytes) override {
    if (kind == kWeights) begins_(to);
    transport_->Send(to, kind, std::move(bytes));
  }
  std::optional<Message> Poll() override { return transport_->Poll(); }
  void BeginFarewell() override { transport_->BeginFarewell(); }
  bool FarewellDone() override { return transport_->FarewellDone(); }
  bool NotifyOnArrival(Wakeup* wakeup) override { return transport_->NotifyOnArrival(wakeup); }
  bool RefuseAnswer(int from, const std::string& why) override {
    return transport_->RefuseAnswer(from, why);
  }
  int Exit(int exit_code) override { return exit_code; }

 private:
  void DoAbort(int exit_code) override { abort_(exit_code); }

  Transport* transport_;
  std::function<void(int to)> begins_;
  std::function<void(int exit_code)> abort_;
};

// A host, of which a machine is one boot.
struct Host {
  std::string name = {};
  int64_t boots = 1;
  int64_t pids = 0;
};

// One start of the job, until all of its processes have ended.
struct Attempt {
  int64_t number = 0;
  Host* host = nullptr;
  Machine machine = {};
  LockClaim claim = {};
  std::optional<int64_t> from = {};  // the step that it goes back to
  bool went_back = false;
  Attempt* rival = nullptr;  // began on the other host meanwhile
  std::vector<std::unique_ptr<SimulatedRank>> ranks;
  std::unique_ptr<Network> network;  // of ranks that are there from the beginning to the end
  std::unique_ptr<Lines> lines;      // of a learner whose workers come and go: ranks 1, 2, ...
  bool learner_gone = false;
  bool learner_only = false;
  bool disturbed = false;
  bool over = false;
  bool power_fails = false;  // where a rank dies:
  const SimulatedRank* power_of = nullptr;
  bool power_failed = false;
  bool only_stands_still = false;  // no other fault disturbs it
  std::optional<MetaTrainResult> result;
};

class Schedule {
 public:
  explicit Schedule(const ScheduleOptions& options)
      : options_(options),
        world_(options.seed, options.trace),
        log_(&world_),
        random_(&world_.random()),
        disk_([this] { return 1.7e9 + std::chrono::duration<double>(world_.now()).count(); }) {
    kind_.async = random_->Chance(0.2);
    kind_.judged = random_->Chance(0.3);
    waits_ = !kind_.async;
    if (!kind_.async && random_->Chance(0.5)) kind_.sum = GradientSum::kTree;
    observer_.UseFiles(&disk_);
    undisturbed_ = &Undisturbed(kind_);
    config_ = SmallRun(kind_);
    quorum_ = config_.workers;
    if (!kind_.async && random_->Chance(0.15)) {
      waits_ = false;
      quorum_ = random_->Between(1, config_.workers);
      const double deadline = 1e-6 * static_cast<double>(random_->AnySize(18));
      config_.mode =
          WriteOptions("Sync", SyncOptions{.deadline_seconds = deadline, .quorum = quorum_});
    }
    config_.checkpoint_steps = random_->Between(0, 3);
    config_.keep_last = random_->Between(1, 3);
    config_.gather_checkpoints = random_->Chance(0.3);
    config_.worker_timeout_seconds = random_->Chance(0.2) ? 5 : 60;
    // Who is not woken looks often, which takes the simulation long where messages do.
    weather_.notifies = random_->Chance(0.8);
    weather_.delay_bits = static_cast<int>(random_->Between(4, weather_.notifies ? 16 : 9));
    weather_.late = random_->Chance(0.3) ? 0.02 : 0;
  }

  ScheduleResult Run() {
    ScheduleResult result;
    try {
      RunToEnd(&result);
    } catch (const Error& error) {
      result.violation = error.what();
      world_.Trace("VIOLATION: {}", error.what());
    }
    End();
    result.trace = world_.trace();
    result.steps = world_.steps();
    result.seconds = std::chrono::duration<double>(world_.now()).count();
    return result;
  }

 private:
  void RunToEnd(ScheduleResult* result) {
    int64_t faulty_attempts = random_->Between(0, kMostFaultyAttempts);
    bool goes_back = random_->Chance(0.15);
    int calm = 0;
    for (int number = 1;; ++number) {
      ++result->attempts;
      Attempt& attempt = Begin(&hosts_[random_->Chance(0.25) ? 1 : 0], number <= faulty_attempts);
      Follow(attempt);
      if (attempt.power_failed) LosePower();
      result->deaths += attempt.ranks[0]->process->dead() ? 1 : 0;
      CheckAttempt(attempt);
      if (attempt.rival != nullptr) CheckAttempt(*attempt.rival);
      const std::string status = Check();
      if (status == "finished") {
        if (!std::exchange(goes_back, false)) break;
        back_ = true;  // also from its end
        faulty_attempts = number + 1;
      } else if (!attempt.disturbed) {
        const std::string& error = attempt.ranks[0]->error;
        Require(error.find("is in use") != std::string::npos && ++calm <= kMostCalmAttempts,
                "an attempt that nothing disturbs ends with: {}",
                error.empty() ? "status " + status : error);
      }
      Pause(seconds(std::min(1 << number, 60)));
    }
    CheckEnd();
  }

  void LosePower() {
    disk_.LosePower(random_);
    watch_.LostPower();
    for (Host& host : hosts_) ++host.boots;
  }

  // Time goes by.
  void Pause(SimTime time) {
    bool over = false;
    world_.At(world_.now() + time, [&over] { over = true; });
    while (!over) world_.Step();
  }

  Attempt& Begin(Host* host, bool faults) {
    attempts_.push_back(std::make_unique<Attempt>());
    Attempt& attempt = *attempts_.back();
    attempt.number = std::ssize(attempts_);
    attempt.host = host;
    attempt.machine = {.host = host->name,
                       .boot = fmt::format("boot {} of {}", host->boots, host->name),
                       .clock = ClockError()};
    const bool elastic = random_->Chance(0.25);
    const auto ranks = elastic ? 1 : random_->Between(1, random_->Between(2, kMostRanks));
    attempt.learner_only = elastic || (ranks > 1 && random_->Chance(0.3));
    std::vector<Process*> processes;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      attempt.ranks.push_back(std::make_unique<SimulatedRank>());
      processes.push_back(MakeRank(&attempt, static_cast<int>(rank)));
    }
    if (elastic) {
      attempt.lines = std::make_unique<Lines>(&world_, processes[0], weather_.delay_bits);
      for (int64_t i = random_->Between(1, 3); i > 0; --i) JoinSoon(&attempt);
    } else {
      attempt.network = std::make_unique<Network>(&world_, weather_, processes);
    }
    attempt.claim.learner = processes[0];
    attempt.claim.text = RecordText(processes[0]->ThisProcess()) + "\n";
    watch_.Add(&attempt.claim);
    if (faults) Disturb(&attempt);
    const InEnvironment outside(&observer_);
    const bool resume = Exists(directory_.ManifestPath());
    if (resume) GoBack(&attempt);
    world_.Trace("attempt {} on {} ranks of {}{}{}{}", attempt.number, ranks, host->name,
                 elastic                ? ", workers come and go"
                 : attempt.learner_only ? ", one for the learner"
                                        : "",
                 resume ? ", resumes" : "",
                 attempt.from ? fmt::format(" from {}", *attempt.from) : "");
    for (int rank = 0; rank < static_cast<int>(ranks); ++rank) Start(&attempt, rank, resume);
    return attempt;
  }

  // Some starts give up what came after an older checkpoint.
  void GoBack(Attempt* attempt) {
    if (!std::exchange(back_, false) && !random_->Chance(0.15)) return;
    const std::vector<int64_t> steps = CheckpointStore(directory_.CheckpointPath(), {}).Steps();
    if (steps.empty()) return;
    attempt->from = steps[static_cast<size_t>(random_->Between(0, std::ssize(steps) - 1))];
  }

  // The job is started on the other host as well, by somebody who does not know that it runs.
  void BeginRival(Attempt* attempt) {
    if (attempt->over || attempt->rival != nullptr) return;
    Host* const other = &hosts_[attempt->host == &hosts_[0] ? 1 : 0];
    attempt->rival = &Begin(other, false);
    attempt->rival->disturbed = true;
  }

  // A worker process comes to the learner after a while, unless that has ended. One in two dies
  // some time later, and another comes.
  void JoinSoon(Attempt* attempt) {
    world_.At(world_.now() + SimTime(random_->AnySize(20)), [this, attempt] {
      if (attempt->ranks[0]->process->dead() || attempt->ranks[0]->process->ended()) return;
      const auto number = std::ssize(attempt->ranks);
      attempt->ranks.push_back(std::make_unique<SimulatedRank>());
      Process* const worker = MakeRank(attempt, static_cast<int>(number));
      SimulatedRank* const rank = attempt->ranks.back().get();
      if (number < kMostWorkers && random_->Chance(0.5)) {
        rank->dies_at = random_->Between(0, random_->AnySize(7));
      }
      world_.Trace("{} comes", worker->name());
      // Who takes long is not done when others come, and leaves its work to them.
      if (random_->Chance(0.5)) worker->SetSlowness(random_->AnySize(12));
      worker->Run([=, this] {
        try {
          RunElasticWorker({.stop = &rank->stop}, [&] { return attempt->lines->Join(worker); });
        } catch (const std::exception& error) {
          world_.Trace("{} fails: {}", worker->name(), error.what());
        }
        if (!worker->dead()) Leave(attempt, worker);
      });
    });
  }

  // A worker process has ended or dies.
  void Leave(Attempt* attempt, const Process* worker) {
    // The machine of some goes with them, and tells nobody.
    if (random_->Chance(0.8)) {
      world_.At(world_.now() + SimTime(random_->AnySize(16)),
                [attempt, worker] { attempt->lines->Ended(worker); });
    }
    JoinSoon(attempt);
  }

  SimTime ClockError() {
    return random_->Chance(0.5) ? SimTime(0)
                                : SimTime(random_->Between(-1, 1) * random_->AnySize(40));
  }

  Process* MakeRank(Attempt* attempt, int number) {
    SimulatedRank* const rank = attempt->ranks.back().get();
    rank->process = std::make_unique<Process>(
        &world_, Process::Options{
                     .name = fmt::format("{}.{}", attempt->number, number),
                     .pid = ++attempt->host->pids,
                     .machine = &attempt->machine,
                     .on_point = [this, attempt, rank](Process*) { Point(attempt, rank); },
                     .runs = [this](const ProcessIdentity& identity) { return Runs(identity); }});
    rank->files = std::make_unique<ProcessFiles>(rank->process.get(), &disk_, [rank](bool flushes) {
      const bool flush_fails = flushes && rank->flushes++ == rank->flush_fails_at;
      if (flush_fails && rank->points_after_failed_flush) {
        rank->dies_at = rank->points + *rank->points_after_failed_flush;
      }
      return rank->writes++ == rank->fails_at || flush_fails ? EIO : 0;
    });
    FileSystem* files = rank->files.get();
    if (number == 0) {
      rank->watched_files =
          std::make_unique<WatchedFiles>(files, kSimulatedRun, &watch_, &attempt->claim);
      files = rank->watched_files.get();
    }
    if (options_.files) {
      rank->other_files = options_.files(number, files);
      files = rank->other_files.get();
    }
    rank->process->UseFiles(files);
    return rank->process.get();
  }

  bool Runs(const ProcessIdentity& identity) const {
    return std::ranges::any_of(attempts_, [&](const auto& attempt) {
      if (attempt->machine.boot != identity.machine) return false;
      return std::ranges::any_of(attempt->ranks, [&](const auto& rank) {
        Process& process = *rank->process;
        return process.ProcessId() == identity.pid && !process.dead() && !process.ended();
      });
    });
  }

  void Point(Attempt* attempt, SimulatedRank* rank) {
    if (rank->points == rank->stands_still_at) {
      rank->stands_still_at = std::numeric_limits<int64_t>::max();
      StandStill(attempt);
    }
    if (rank->points++ != rank->dies_at) return;
    if (attempt->power_fails && rank == attempt->power_of) {
      for (const auto& present : attempts_) {
        present->power_failed |= !present->over;
        for (const auto& other : present->ranks) other->process->Kill("the power fails");
      }
      return;
    }
    rank->process->Kill("it is killed");
    if (attempt->network) attempt->network->EndJob("another rank was killed");
    if (attempt->lines && rank != attempt->ranks[0].get()) Leave(attempt, rank->process.get());
  }

  // Draws what will happen to an attempt.
  void Disturb(Attempt* attempt) {
    attempt->disturbed = true;
    const auto any_rank = [&]() -> SimulatedRank* {
      const auto last = std::ssize(attempt->ranks) - 1;
      return attempt
          ->ranks[static_cast<size_t>(random_->Chance(0.5) ? 0 : random_->Between(0, last))]
          .get();
    };
    const auto soon = [&] { return world_.now() + SimTime(random_->AnySize(24)); };
    const int64_t faults = random_->Between(1, 2);
    for (int64_t i = 0; i < faults; ++i) {
      SimulatedRank* const rank = any_rank();
      switch (random_->Between(0, 12)) {
        case 0:
        case 1:
        case 2:
          rank->dies_at = random_->Between(0, random_->AnySize(9));
          attempt->power_fails = random_->Chance(0.5);
          attempt->power_of = rank;
          break;
        case 3:
          rank->fails_at = random_->Between(0, random_->AnySize(8));
          break;
        case 4:
          world_.At(soon(), [this, attempt, room = random_->AnySize(14) - 1] {
            if (!attempt->over) disk_.SetRoom(room);
          });
          break;
        case 5:
          world_.At(soon(), [this, rank, time = SimTime(random_->AnySize(28))] {
            world_.Trace("{} stops for {} us", rank->process->name(), time.count());
            rank->process->Stop(world_.now() + time);
          });
          break;
        case 6:
          world_.At(soon(), [this, attempt, error = ClockError()] {
            world_.Trace("the clock is set {} us ahead", error.count());
            attempt->machine.clock = error;
          });
          break;
        case 7:
          rank->process->SetSlowness(random_->AnySize(10));
          break;
        case 8:
          rank->flush_fails_at = random_->Between(0, random_->AnySize(6));
          if (random_->Chance(0.5)) {
            rank->points_after_failed_flush = random_->AnySize(7);
            attempt->power_fails = true;
            attempt->power_of = rank;
          }
          break;
        case 9:
          world_.At(soon(), [this, attempt] { BeginRival(attempt); });
          break;
        case 10:
        case 11:
          attempt->only_stands_still = faults == 1;
          attempt->ranks[0]->stands_still_at = random_->Between(0, random_->AnySize(9));
          break;
        default:
          world_.At(soon(), [attempt] {
            for (const auto& told : attempt->ranks) told->stop = true;
          });
      }
    }
  }

  // All processes stand still, as on a machine that sleeps, and meanwhile or soon after the job is
  // started on the other host. To be called in a task of the learner.
  void StandStill(Attempt* attempt) {
    const SimTime end = world_.now() + seconds(random_->Between(40, 200));
    world_.Trace("all ranks of attempt {} stand still", attempt->number);
    for (const auto& rank : attempt->ranks) rank->process->Stop(end);
    const SimTime rival = seconds(random_->Between(40, 120)) - SimTime(random_->AnySize(20));
    world_.At(world_.now() + rival, [this, attempt] { BeginRival(attempt); });
    attempt->ranks[0]->process->Wait(SimTime(0));
  }

  void Start(Attempt* attempt, int number, bool resume) {
    SimulatedRank* const rank = attempt->ranks[static_cast<size_t>(number)].get();
    const bool under_mpi = attempt->network && (attempt->ranks.size() > 1 || random_->Chance(0.5));
    rank->process->Run([=, this] {
      Process* const process = rank->process.get();
      MetaTrainConfig config = config_;
      MetaTrainerOptions options{.out_dir = kSimulatedRun, .resume = resume, .from = attempt->from};
      options.stop = &rank->stop;
      options.learner_only = attempt->learner_only;
      std::unique_ptr<Transport> transport;
      if (attempt->lines) {
        config.gather_checkpoints = true;
        auto elastic = std::make_unique<ElasticTransport>(
            config, options,
            ElasticOptions{.snapshot_updates = 2,
                           .now = [process] { return process->Now(); },
                           .keeps_dead_heirs = options_.keeps_dead_heirs},
            attempt->lines->Listen());
        options.on_experiment = [mine = elastic.get()](const Experiment& made) {
          mine->Know(made);
        };
        transport = std::move(elastic);
      } else {
        transport = attempt->network->TransportOf(number);
      }
      if (options_.transport) transport = options_.transport(std::move(transport));
      LearnersTransport learners(
          transport.get(), [&](int to) { CountWindows(*attempt, to, transport->size()); },
          [&](int exit_code) {
            if (attempt->network) transport->Abort(exit_code);
            process->Kill("it ends the job");
            process->WaitOrDie(SimTime(0));
          });
      options.transport = number == 0 ? &learners : transport.get();
      options.on_event = [=, this](std::string_view what) {
        NoteEvent(attempt, *rank->process, what);
      };
      if (under_mpi) {
        options.on_failure = [rank, mine = options.transport](const char* error) {
          rank->error = error;
          mine->Abort(1);
        };
      }
      try {
        MetaTrainResult result = RunMetaTraining(config, options);
        if (number == 0) attempt->result = std::move(result);
      } catch (const std::exception& error) {
        if (!rank->process->dead()) rank->error = error.what();
        world_.Trace("{} fails: {}", process->name(), error.what());
        // As lopt meta-train does: the learner's error is to be the only one.
        for (int i = 0; under_mpi && number > 0 && i < 100; ++i) {
          transport->Poll();
          rank->process->WaitOrDie(SimTime(10'000));
        }
        if (under_mpi) transport->Abort(1);
      }
    });
  }

  void NoteEvent(Attempt* attempt, const Process& process, std::string_view what) {
    world_.Trace("{} comes to {}", process.name(), what);
    if (process.dead()) return;
    if (what.starts_with("checkpoint:")) {
      what.remove_prefix(what.find(':') + 1);
      const int64_t step = std::stoll(std::string(what));
      // After "checkpoint:<step>:rename" the directory has its name on disk.
      if (what.ends_with(":rename")) newest_ = std::max(newest_, step);
      if (what.ends_with(":retention")) acknowledged_ = std::max(acknowledged_, step);
    } else if (attempt->claim.lost()) {
      return;
    } else if (what.starts_with("step:")) {
      // What it has given up is gone for good, as the run has gone on.
      if (attempt->from && !std::exchange(attempt->went_back, true)) WentBack(*attempt);
      best_ = std::max<int64_t>(best_, std::stoll(std::string(what.substr(5))));
    } else if (what == "theta") {
      theta_ = true;
    } else if (what == "finish") {
      attempt->claim.finishing = true;
    }
  }

  static bool Ended(const Attempt& attempt) {
    return std::ranges::all_of(attempt.ranks, [](const auto& r) { return r->process->ended(); });
  }

  // The worker processes of a learner that has gone go, too.
  void TendWorkers(Attempt* attempt) {
    if (!attempt->lines || !attempt->ranks[0]->process->ended() ||
        std::exchange(attempt->learner_gone, true)) {
      return;
    }
    attempt->lines->Ended(attempt->ranks[0]->process.get());
    world_.At(world_.now() + seconds(3), [attempt] {
      for (const auto& rank : attempt->ranks) rank->process->Kill("nobody needs it any more");
    });
  }

  // Until all processes of the attempt, and of its rival, have ended.
  void Follow(Attempt& attempt) {
    const SimTime begin = world_.now();
    const int64_t first_step = world_.steps();
    while (!Ended(attempt) || (attempt.rival != nullptr && !Ended(*attempt.rival))) {
      Require(world_.Step() && world_.now() - begin < kLongestAttempt &&
                  world_.steps() - first_step < kMostSteps,
              "the job hangs: it is not over after {} s and {} steps",
              std::chrono::duration_cast<seconds>(world_.now() - begin).count(),
              world_.steps() - first_step);
      TendWorkers(&attempt);
      if (attempt.rival != nullptr) TendWorkers(attempt.rival);
      Require(watch_.violation().empty(), "{}", watch_.violation());
      Require(violation_.empty(), "{}", violation_);
    }
    attempt.over = true;
    if (attempt.rival != nullptr) attempt.rival->over = true;
    disk_.SetRoom({});
  }

  // The invariants of a start of the job that is over.
  void CheckAttempt(const Attempt& attempt) {
    Count(attempt);
    // It may have given up something.
    if (attempt.from && !attempt.went_back) {
      acknowledged_ = std::min(acknowledged_, *attempt.from);
    }
    if (attempt.lines) {
      Require(attempt.lines->sent_to_the_gone() == 0,
              "{} frames were sent to processes that had gone", attempt.lines->sent_to_the_gone());
    } else if (attempt.result && !attempt.result->interrupted) {
      Require(attempt.network->Left() == 0, "{} messages are left of a job that has finished",
              attempt.network->Left());
    }
    if (attempt.claim.lost()) CheckLoser(attempt);
  }

  // Who has lost the lock ends with that error, before another write than the one that it was in.
  void CheckLoser(const Attempt& attempt) {
    const std::set<std::string>& written = attempt.claim.written_without;
    spoiled_.insert(written.begin(), written.end());
    const std::string& name = attempt.ranks[0]->process->name();
    Require(written.size() <= 1, "{} had lost the lock and wrote {}", name,
            fmt::join(written, ", "));
    const std::string& error = attempt.ranks[0]->error;
    if (attempt.result) {
      Require(attempt.claim.finishing || written.contains("manifest.json"),
              "{} had lost the lock before its last write and ended well", name);
    } else if (attempt.only_stands_still && attempt.ranks.size() == 1 && written.empty()) {
      // Or the other has made the run, or cleared away what was being written.
      const auto says = [&](const char* text) { return error.find(text) != std::string::npos; };
      Require(says("has taken this directory over") || says("holds a run already") ||
                  says("No such file or directory"),
              "{} had lost the lock and ends with: {}", name, error);
    }
  }

  // The invariants of the run's directory after each end of the job. Returns the run's status.
  std::string Check() {
    const InEnvironment outside(&observer_);
    if (!Exists(directory_.ManifestPath())) return "not begun";
    std::string status = directory_.ReadManifest().status;
    const CheckpointStore store(directory_.CheckpointPath(), {});
    const std::vector<int64_t> steps = store.Steps();
    const int64_t newest = steps.empty() ? -1 : steps.back();
    Require(newest >= acknowledged_ || spoiled_.contains("checkpoints"),
            "checkpoint {} was acknowledged, and the newest is {}", acknowledged_, newest);
    CheckGivenUp(newest);
    best_is_torn_ = best_is_torn_ || BestIsTorn();
    if (newest >= 0) {
      last_ = store.Read(newest);
      CheckCheckpoint(last_);
    }
    world_.Trace("the run is {}, its newest checkpoint {}", status, newest);
    return status;
  }

  // What was given up is not there.
  void CheckGivenUp(int64_t newest) const {
    Require(newest <= newest_ || spoiled_.contains("checkpoints"),
            "checkpoint {} is there, and given up or not complete; none is to be newer than {}",
            newest, newest_);
    Require(theta_ || spoiled_.contains("theta.safetensors") || !Exists(directory_.ThetaPath()),
            "theta.safetensors was given up, and is there");
    const std::string path = directory_.path() + "/best.json";
    if (!Exists(path) || spoiled_.contains("best.json")) return;
    const auto updates = ParseStrictJson(ReadTextFile(path), path, false).at("updates");
    Require(updates.get<int64_t>() <= best_,
            "the best theta is of {} updates, which were given up; the run has come to {}",
            updates.get<int64_t>(), best_);
  }

  // The learner has ended between the two files of a best theta: it overwrote the one before.
  bool BestIsTorn() const {
    const std::string record = directory_.path() + "/best.json";
    const std::string theta = directory_.path() + "/theta_best.safetensors";
    if (!Exists(record) || !Exists(theta)) return Exists(theta);
    return ParseStrictJson(ReadTextFile(record), record, false).at("updates").get<int64_t>() !=
           ReadThetaFile(theta).meta_steps;
  }

  // The run has gone on from an older checkpoint.
  void WentBack(const Attempt& attempt) {
    newest_ = best_ = *attempt.from;
    acknowledged_ = std::min(acknowledged_, *attempt.from);
    theta_ = false;
    const InEnvironment outside(&observer_);
    try {
      CheckGivenUp(CheckpointStore(directory_.CheckpointPath(), {}).Steps().back());
    } catch (const Error& error) {
      violation_ = error.what();
    }
  }

  void CheckCheckpoint(const Checkpoint& checkpoint) const {
    const auto step = static_cast<size_t>(checkpoint.learner.outer_step);
    Require(step <= static_cast<size_t>(config_.meta_steps), "a checkpoint has {} updates", step);
    const int64_t used = checkpoint.ledger.Total()[Outcome::kUsed];
    const int64_t expected_used =
        checkpoint.learner.outer_step * WindowsPerUpdate(kind_) * undisturbed_->steps_per_window;
    const int64_t least_used = expected_used * quorum_ / config_.workers;
    Require(used <= expected_used && used >= least_used,
            "{} inner steps are used after {} updates, which take {} to {}", used, step, least_used,
            expected_used);
    if (!waits_) return;
    const Checkpoint& expected = undisturbed_->checkpoints[step];
    Require(checkpoint.learner.theta == expected.learner.theta &&
                checkpoint.learner.theta_opt == expected.learner.theta_opt,
            "theta after {} updates is not that of the undisturbed run", step);
  }

  void CountWindows(const Attempt& attempt, int rank, int ranks) {
    if (attempt.ranks[0]->process->dead()) return;
    const int64_t count = WorkersOfRank(config_.workers, rank, ranks, attempt.learner_only).count;
    (attempt.claim.lost() ? unsure_windows_ : windows_) += count;
  }

  // What is not known of the windows that were begun.
  void Count(const Attempt& attempt) {
    const bool unsure = attempt.ranks[0]->process->dead() || attempt.claim.lost();
    unsure_windows_ += unsure ? config_.workers : 0;
    exact_ = exact_ && !attempt.power_failed;
  }

  void CheckEnd() {
    const InEnvironment outside(&observer_);
    if (last_.learner.outer_step != config_.meta_steps && spoiled_.contains("checkpoints")) return;
    Require(last_.learner.outer_step == config_.meta_steps, "a finished run has {} updates",
            last_.learner.outer_step);
    Require(spoiled_.contains("theta.safetensors") ||
                ReadThetaFile(directory_.ThetaPath()).theta == last_.learner.theta,
            "theta.safetensors is not that of the checkpoint");
    CheckFiles();
    // Where updates do not wait, a worker may not have come to do again what it lost.
    const int64_t unknown = last_.ledger.UnknownWindows();
    Require(!waits_ || unknown == 0, "{} windows were lost and are in no share", unknown);
    if (spoiled_.contains("windows.bin")) return;
    const int64_t accounted =
        last_.ledger.Total().Total() / undisturbed_->steps_per_window + unknown;
    Require(accounted <= windows_ + unsure_windows_ && (!exact_ || accounted >= windows_),
            "the ledger accounts for {} windows, {} were begun and {} may have been", accounted,
            windows_, unsure_windows_);
  }

  // The files of the finished run are those of the undisturbed one.
  void CheckFiles() const {
    if (spoiled_.contains("logs")) return;
    IgnoredFiles ignored = spoiled_;
    if (spoiled_.contains("best.json")) ignored.insert("theta_best");
    ignored.insert("/rank-0.json.tmp.");
    for (int rank = 1; rank <= kMostWorkers; ++rank)
      ignored.insert(fmt::format("status/rank-{}", rank));
    // A process that dies when the run has finished leaves its lock, and what was not on the disk.
    if (attempts_.back()->disturbed) ignored.insert({"run.lock", "status", ".tmp.", "/tmp-"});
    // A run that goes back gives up a later best theta, and with it what was the best before; so
    // does one that goes on where the best theta was being written.
    const bool went_back = std::ranges::any_of(
        attempts_, [](const auto& attempt) { return attempt->from.has_value(); });
    if (!waits_ && (went_back || best_is_torn_)) ignored.insert("best.json");
    // A run that goes on gives up a best theta of updates after its checkpoint, and with it what
    // was the best before. Where updates do not wait, neither comes again.
    const bool best_of_all = waits_ || attempts_.size() == 1;
    const RunFiles files = ReadRunFiles(directory_.path(), ignored, best_of_all);
    if (!waits_) {
      ignored.insert({"theta", "best.json", "metrics.jsonl", "events", "checkpoints"});
    }
    RequireSameFiles(files, undisturbed_->files, ignored);
  }

  // All tasks have to end before what they use goes.
  void End() {
    for (const auto& attempt : attempts_) {
      for (const auto& rank : attempt->ranks) rank->process->Kill("the simulation ends");
    }
    for (const auto& attempt : attempts_) {
      while (
          !std::ranges::all_of(attempt->ranks, [](const auto& r) { return r->process->ended(); })) {
        world_.Step();
      }
    }
  }

  ScheduleOptions options_;
  World world_;
  QuietLog log_;
  Random* random_;
  Disk disk_;
  SmallRunKind kind_;
  bool waits_ = true;  // each update for all workers, so theta has the bits of the undisturbed run
  const UndisturbedRun* undisturbed_;
  MetaTrainConfig config_;
  int64_t quorum_ = 0;  // workers that an update needs at least
  Network::Options weather_;
  RunDirectory directory_{kSimulatedRun};
  Machine observers_machine_{.host = "observer", .boot = "observer"};
  Process observer_{&world_, {.name = "observer", .machine = &observers_machine_}};
  std::vector<std::unique_ptr<Attempt>> attempts_;
  // Other process numbers, too: the unique numbers of simulated processes all begin with 0.
  std::array<Host, 2> hosts_ = {Host{.name = "host"}, Host{.name = "other", .pids = 1000}};
  LockWatch watch_{&world_, &disk_, std::string(kSimulatedRun) + "/run.lock"};
  std::string violation_;          // seen while the job ran
  std::set<std::string> spoiled_;  // by who lost the lock in the middle of a write
  bool back_ = false;              // the next start goes back to an older checkpoint
  // Of what was not given up: the newest checkpoint that is on the disk, and that may be; the
  // updates that the best theta may have; whether the final theta may be there.
  int64_t acknowledged_ = -1;
  int64_t newest_ = -1;
  int64_t best_ = 0;
  bool theta_ = false;
  bool best_is_torn_ = false;   // after some attempt
  Checkpoint last_;             // the newest, as it was read after the last end of the job
  int64_t windows_ = 0;         // begun
  int64_t unsure_windows_ = 0;  // may have been begun: the learner died
  bool exact_ = true;
};

}  // namespace

ScheduleResult RunSchedule(const ScheduleOptions& options) { return Schedule(options).Run(); }

}  // namespace lopt
