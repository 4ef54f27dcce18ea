#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "lopt/learner/transport/transport.h"
#include "lopt/tools/simulate/process.h"

namespace lopt {

// The messages of one job. Those from one rank to another keep their order and arrive after times
// that are drawn, so between pairs of ranks any order comes about. Those to a rank that has died
// are lost, and when one ends the job the others die soon after.
class Network {
 public:
  struct Options {
    int delay_bits = 8;     // the usual delay is below 2^delay_bits microseconds
    double late = 0;        // how likely one is that may be 2 s long
    bool notifies = false;  // whether a message wakes who waits for it
  };
  Network(World* world, const Options& options, std::vector<Process*> ranks);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // To be used in tasks of that rank.
  std::unique_ptr<Transport> TransportOf(int rank);
  // All ranks die, one after the other.
  void EndJob(const char* why);
  // Messages that nobody has taken, but those that may come too late: heartbeats and wishes to
  // stop.
  int64_t Left() const;

 private:
  class RankTransport;
  struct Inbox;

  World* world_;
  Options options_;
  std::vector<Process*> ranks_;
  std::vector<Inbox> inboxes_;
  size_t farewells_ = 0;
  bool ended_ = false;
};

}  // namespace lopt
