#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "lopt/learner/elastic/connections.h"

namespace lopt {

// Connections that give signs of life by themselves, for a thread that does not look at them while
// it computes.
class PulsedConnections final : public Connections {
 public:
  explicit PulsedConnections(std::unique_ptr<Connections> connections)
      : connections_(std::move(connections)) {}

  // From now on the connection gives one every so many seconds, the same for all connections.
  void Pulse(int64_t connection, double seconds);

  std::string Description() const override;
  std::optional<Event> Poll() override;
  void Send(int64_t connection, Frame frame) override;
  void Trust(int64_t connection, size_t most_bytes) override;
  int64_t Arrived(int64_t connection) override;
  void Close(int64_t connection) override;
  bool Idle() const override;
  void NotifyOnEvent(Wakeup* wakeup) override;

 private:
  void Run(const std::stop_token& stop, double seconds);

  mutable std::mutex mutex_;  // of what follows
  std::unique_ptr<Connections> connections_;
  std::set<int64_t> pulsed_;
  double seconds_ = 0;  // between two, once there are any
  std::condition_variable_any stopped_;
  std::jthread pulsing_;  // the last: it ends first
};

}  // namespace lopt
