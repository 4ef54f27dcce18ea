#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "lopt/learner/elastic/connections.h"
#include "lopt/learner/elastic/frame.h"

namespace lopt {

// What an elastic learner knows of one connection.
struct Peer {
  using TimePoint = std::chrono::steady_clock::time_point;

  std::string where = {};  // "10.0.0.7:4711"
  std::string name = {};   // for the log
  TimePoint heard = {};
  bool joined = false;    // its first frame was good
  bool equipped = false;  // it takes leases
  int64_t threads = 1;
  size_t most_bytes = 0;  // that a frame of it may have
  FrameBody told = {};    // the body of the last kTell
  TimePoint answered = {};
  int64_t arrived = 0;   // of Connections
  int64_t progress = 0;  // as its last kPulse said
  TimePoint progressed = {};

  // Its frames may have so many bytes from now on, if they might not before.
  void Allow(size_t bytes, int64_t connection, Connections* connections) {
    if (most_bytes < bytes) {
      most_bytes = bytes;
      connections->Trust(connection, bytes);
    }
  }
};

using Peers = std::map<int64_t, Peer>;  // by connection

}  // namespace lopt
