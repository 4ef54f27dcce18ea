#include "lopt/tools/simulate/process.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "lopt/base/error.h"

namespace lopt {
namespace {

// Between a wish and its effect, in powers of two of microseconds.
constexpr int kWakeBits = 8;
constexpr int kWorkBits = 10;
// A task that nobody wakes.
constexpr SimTime kNever = SimTime::max() / 2;
// That of steady clocks at the beginning, so that what is before it is positive too.
constexpr std::chrono::hours kUp{100};
constexpr std::chrono::seconds kEpoch{1'700'000'000};

class SimulatedAlarm final : public Environment::Alarm {
 public:
  explicit SimulatedAlarm(Process* process) : process_(process) {}

  void Notify() override {
    pending_ = true;
    if (waits_ != nullptr) process_->Wake(waits_);
  }
  void WaitFor(std::chrono::microseconds time) override {
    if (!pending_) {
      waits_ = process_->world().running();
      process_->WaitOrDie(time);
      waits_ = nullptr;
    } else {
      process_->WaitOrDie(SimTime(0));
    }
    pending_ = false;
  }

 private:
  Process* process_;
  bool pending_ = false;
  World::Task* waits_ = nullptr;
};

class SimulatedExecutor final : public Environment::Executor {
 public:
  explicit SimulatedExecutor(Process* process) : process_(process) {
    task_ = process->world().Start(process, [this] { Loop(); });
  }
  ~SimulatedExecutor() override {
    ending_ = true;
    while (!ended_ && !process_->dead()) {
      process_->Wake(task_);
      process_->Wait(SimTime(100));
    }
    if (!ended_) process_->world().Unwind(process_);
  }

  void Post(std::function<void()> work) override {
    waiting_.push_back(std::move(work));
    if (waits_) process_->Wake(task_);
  }

 private:
  bool Ends() const { return ending_ || process_->dead(); }

  void Loop() {
    while (!Ends()) {
      if (waiting_.empty()) {
        waits_ = true;
        process_->Wait(kNever);
        waits_ = false;
        continue;
      }
      process_->Wait(process_->ShortTime(kWorkBits));
      if (Ends()) break;
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      try {
        work();
      } catch (const Killed&) {
      }
    }
    ended_ = true;
  }

  Process* process_;
  World::Task* task_;
  std::deque<std::function<void()>> waiting_;
  bool waits_ = false;
  bool ending_ = false;
  bool ended_ = false;
};

}  // namespace

void Process::Run(std::function<void()> body) {
  main_ = world_->Start(this, [this, body = std::move(body)] {
    try {
      body();
    } catch (const Killed&) {
    }
    ended_ = true;
  });
}

void Process::Kill(std::string_view why) {
  if (dead_ || ended_) return;
  world_->Trace("{} dies: {}", name(), why);
  dead_ = true;
  stopped_until_ = SimTime(0);
  world_->WakeAt(main_, world_->now());
}

bool Process::Point() {
  if (!dead_ && options_.on_point) options_.on_point(this);
  return !dead_;
}

void Process::Wait(SimTime time) {
  if (dead_) return;
  world_->WaitUntil(std::max(world_->now() + time, stopped_until_));
  while (!dead_ && world_->now() < stopped_until_) world_->WaitUntil(stopped_until_);
}

void Process::WaitOrDie(SimTime time) {
  Wait(time);
  if (!dead_) return;
  world_->Unwind(this);
  throw Killed();
}

void Process::Wake(World::Task* task) {
  world_->WakeAt(task, world_->now() + ShortTime(kWakeBits));
}

SimTime Process::ShortTime(int bits) { return SimTime(world_->random().AnySize(bits) * slowness_); }

std::chrono::steady_clock::time_point Process::Now() {
  return std::chrono::steady_clock::time_point(kUp + world_->now());
}

std::chrono::system_clock::time_point Process::Date() {
  return std::chrono::system_clock::time_point(kEpoch + world_->now() + machine().clock);
}

std::unique_ptr<Environment::Alarm> Process::MakeAlarm() {
  return std::make_unique<SimulatedAlarm>(this);
}

std::unique_ptr<Environment::Executor> Process::MakeExecutor(int threads) {
  Require(threads >= 1, "a pool must have at least 1 thread, got {}", threads);
  return std::make_unique<SimulatedExecutor>(this);
}

ProcessIdentity Process::ThisProcess() {
  return {
      .host = HostName(), .machine = machine().boot, .pid = options_.pid, .start = options_.pid};
}

std::optional<bool> Process::StillRuns(const ProcessIdentity& process) {
  if (process.machine != machine().boot) return std::nullopt;
  return options_.runs(process);
}

}  // namespace lopt
