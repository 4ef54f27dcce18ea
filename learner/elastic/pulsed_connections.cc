#include "lopt/learner/elastic/pulsed_connections.h"

#include <chrono>

#include "lopt/base/error.h"

namespace lopt {

void PulsedConnections::Pulse(int64_t connection, double seconds) {
  const std::lock_guard lock(mutex_);
  Require(!pulsing_.joinable() || seconds == seconds_, "pulses every {} s were wanted after {} s",
          seconds, seconds_);
  pulsed_.insert(connection);
  if (!pulsing_.joinable()) {
    seconds_ = seconds;
    pulsing_ = std::jthread([this, seconds](const std::stop_token& stop) { Run(stop, seconds); });
  }
}

void PulsedConnections::Run(const std::stop_token& stop, double seconds) {
  const std::chrono::duration<double> interval(seconds);
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, stop, interval, [&] { return stop.stop_requested(); })) {
    for (const int64_t connection : pulsed_) {
      connections_->Send(connection, {.type = FrameType::kPulse});
    }
  }
}

std::string PulsedConnections::Description() const {
  const std::lock_guard lock(mutex_);
  return connections_->Description();
}

std::optional<Connections::Event> PulsedConnections::Poll() {
  const std::lock_guard lock(mutex_);
  std::optional<Event> event = connections_->Poll();
  if (event && event->what == Event::What::kClosed) pulsed_.erase(event->connection);
  return event;
}

void PulsedConnections::Send(int64_t connection, Frame frame) {
  const std::lock_guard lock(mutex_);
  connections_->Send(connection, std::move(frame));
}

void PulsedConnections::Trust(int64_t connection, size_t most_bytes) {
  const std::lock_guard lock(mutex_);
  connections_->Trust(connection, most_bytes);
}

int64_t PulsedConnections::Arrived(int64_t connection) {
  const std::lock_guard lock(mutex_);
  return connections_->Arrived(connection);
}

void PulsedConnections::Close(int64_t connection) {
  const std::lock_guard lock(mutex_);
  pulsed_.erase(connection);
  connections_->Close(connection);
}

bool PulsedConnections::Idle() const {
  const std::lock_guard lock(mutex_);
  return connections_->Idle();
}

void PulsedConnections::NotifyOnEvent(Wakeup* wakeup) {
  const std::lock_guard lock(mutex_);
  connections_->NotifyOnEvent(wakeup);
}

}  // namespace lopt
