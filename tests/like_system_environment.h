#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lopt/base/environment.h"

namespace lopt {

// An environment that hands everything on to the system's: a test overrides what it wants
// otherwise.
class LikeSystemEnvironment : public Environment {
 public:
  std::chrono::steady_clock::time_point Now() override { return System().Now(); }
  std::chrono::system_clock::time_point Date() override { return System().Date(); }
  std::unique_ptr<Alarm> MakeAlarm() override { return System().MakeAlarm(); }
  std::unique_ptr<Executor> MakeExecutor(int threads) override {
    return System().MakeExecutor(threads);
  }
  FileSystem& files() override { return System().files(); }
  std::string HostName() override { return System().HostName(); }
  int64_t ProcessId() override { return System().ProcessId(); }
  uint64_t UniqueNumber() override { return System().UniqueNumber(); }
  ProcessIdentity ThisProcess() override { return System().ThisProcess(); }
  std::optional<bool> StillRuns(const ProcessIdentity& process) override {
    return System().StillRuns(process);
  }
  void Say(std::string_view line) override { System().Say(line); }
};

// The system's, but for its files.
template <class Files>
class EnvironmentWith final : public LikeSystemEnvironment {
 public:
  Files& files() override { return files_; }

 private:
  Files files_;
};

}  // namespace lopt
