#include "lopt/base/environment.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "lopt/base/parallel.h"
#include "lopt/base/print.h"
#include "lopt/base/utf8.h"

namespace lopt {
namespace {

thread_local Environment* current_environment = nullptr;

class SystemAlarm final : public Environment::Alarm {
 public:
  void Notify() override {
    {
      const std::lock_guard lock(mutex_);
      pending_ = true;
    }
    condition_.notify_one();
  }
  void WaitFor(std::chrono::microseconds time) override {
    std::unique_lock lock(mutex_);
    condition_.wait_for(lock, time, [this] { return pending_; });
    pending_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool pending_ = false;
};

class ThreadExecutor final : public Environment::Executor {
 public:
  explicit ThreadExecutor(int threads) : pool_(threads), environment_(&Environment::Current()) {
    thread_ = std::thread([this] { Loop(); });
  }
  ~ThreadExecutor() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    posted_.notify_one();
    thread_.join();
  }

  void Post(std::function<void()> work) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(work));
    }
    posted_.notify_one();
  }

 private:
  void Loop() {
    const InEnvironment inside(environment_);
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        posted_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
        if (ending_) {
          return;
        }
        work = std::move(waiting_.front());
        waiting_.pop_front();
      }
      pool_.Run(work);
    }
  }

  ThreadPool pool_;
  Environment* environment_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;
  std::thread thread_;
};

class SystemEnvironment final : public Environment {
 public:
  std::chrono::steady_clock::time_point Now() override { return std::chrono::steady_clock::now(); }
  std::chrono::system_clock::time_point Date() override { return std::chrono::system_clock::now(); }
  std::unique_ptr<Alarm> MakeAlarm() override { return std::make_unique<SystemAlarm>(); }
  std::unique_ptr<Executor> MakeExecutor(int threads) override {
    return std::make_unique<ThreadExecutor>(threads);
  }
  FileSystem& files() override { return SystemFiles(); }
  std::string HostName() override { return lopt::HostName(); }
  int64_t ProcessId() override { return ::getpid(); }
  uint64_t UniqueNumber() override {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }
  ProcessIdentity ThisProcess() override { return lopt::ThisProcess(); }
  std::optional<bool> StillRuns(const ProcessIdentity& process) override {
    return lopt::StillRuns(process);
  }
  void Say(std::string_view line) override { PrintErr("lopt: {}\n", PlainLines(line)); }
};

}  // namespace

Environment& Environment::System() {
  static SystemEnvironment system;
  return system;
}

Environment& Environment::Current() {
  return current_environment != nullptr ? *current_environment : System();
}

InEnvironment::InEnvironment(Environment* environment)
    : outer_(std::exchange(current_environment, environment)) {}

InEnvironment::~InEnvironment() { current_environment = outer_; }

double SecondsSince1970() {
  return std::chrono::duration<double>(Environment::Current().Date().time_since_epoch()).count();
}

}  // namespace lopt
