#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "lopt/base/descriptor.h"
#include "lopt/learner/elastic/address.h"
#include "lopt/learner/elastic/strangers.h"

namespace lopt {

// A socket that listens. It accepts connections on a thread of its own, since gRPC's stops to
// listen when a process has no descriptors left, and hands them on. It keeps a copy of each
// descriptor, by which another thread ends connections that go beyond the limits of strangers,
// below all that their bytes mean: who they are handed to may be busy with them for long.
// Connections are named by where they come from, as "10.0.0.7:4711".
class Listener {
 public:
  using Clock = std::chrono::steady_clock;

  // Port 0: one that is free. Throws Error if that is not possible.
  explicit Listener(
      const NetAddress& wanted, const StrangerLimits& limits = {},
      std::function<Clock::time_point()> now = [] { return Clock::now(); });
  ~Listener() { Stop(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const NetAddress& address() const { return address_; }
  // Connections that have come, those that were closed at once included.
  int64_t accepted() const { return accepted_; }

  // `take` gets each connection and the socket that listens, on a thread of the listener; the
  // first is its own.
  void Start(std::function<void(int connection, int socket)> take);
  void Stop();

  // The following are for any thread. Nothing comes of them if the connection has gone.

  // Its other end has begun a call. Returns whether that is the first; a second ends the
  // connection.
  bool BeginCall(const std::string& from);
  // Its other end has shown the token, so it is no stranger any more.
  void Trust(const std::string& from);
  int64_t strangers() const;
  // How many were ended, and why, as Strangers::TakeEnded.
  std::string TakeEnded();

 private:
  struct Connection {
    Connection(int descriptor, std::string peer) : copy(descriptor), from(std::move(peer)) {}
    Descriptor copy;
    std::string from;
    bool called = false;
  };
  using Kept = std::map<int64_t, Connection>;

  void Accept();
  void Take(int connection);
  bool Keep(int connection);
  void WatchStrangers();
  int MillisecondsToNext() const;
  void Look(int64_t number);
  void EndOverdue();
  // The following are to be called with the mutex held.
  void End(Kept::iterator connection);
  void Forget(Kept::iterator connection);
  Kept::iterator Find(const std::string& from);

  const std::function<Clock::time_point()> now_;
  NetAddress address_;
  Descriptor socket_;
  Descriptor stop_;     // readable: accept no more
  Descriptor changed_;  // raised: there are other strangers, or none any more
  Descriptor watch_;
  const uint64_t most_;  // descriptors
  std::atomic<int64_t> accepted_ = 0;
  std::atomic<bool> stopping_ = false;
  std::function<void(int, int)> take_;
  mutable std::mutex mutex_;
  Strangers strangers_;
  Kept connections_;
  std::map<std::string, int64_t> number_of_;  // by where they come from
  int64_t numbers_ = 0;
  std::thread accepting_;
  std::thread watching_;
};

}  // namespace lopt
