#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/environment.h"
#include "lopt/learner/job/idle_wait.h"
#include "lopt/learner/job/messages.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// Exit code of a job that a rank has ended since another was silent, or its own work stood still
// (EX_UNAVAILABLE).
inline constexpr int kExitRankLost = 69;

// What the main thread of a rank does while work goes on elsewhere: takes messages, exchanges signs
// of life with its peers and keeps its status file.
class MessageLoop {
 public:
  struct Options {
    double timeout_seconds = 0;  // a peer silent for so long ends the job; 0: never
    // Work that does not get on for so long ends the job; 0: never. Each watch is of one kind of
    // work: a number that changes as it gets on, none while there is no such work.
    double progress_timeout_seconds = 0;
    std::vector<std::function<std::optional<int64_t>()>> progress = {};
    // Given every message but heartbeats.
    std::function<void(Message)> on_message = {};
    // Called often; true if it did something.
    std::function<bool()> on_poll = {};
    // Whether a message is waited for that holds up work; otherwise messages are looked for once a
    // millisecond.
    std::function<bool()> urgent = {};
    std::function<std::string_view()> state = {};  // for the status file
  };

  // The learner (rank 0) has all other ranks as peers, they have the learner.
  MessageLoop(Transport* transport, Wakeup* wakeup, Options options);

  // Goes on until done() is true. `longest` is the longest time between two looks at it.
  void RunUntil(const std::function<bool()>& done,
                std::chrono::microseconds longest = std::chrono::milliseconds(20));

  // The updates of theta that this rank knows of.
  void SetUpdates(int64_t updates) { updates_ = updates; }
  // From now on the status file is written, at most twice a second.
  void WriteStatusTo(std::string path);
  // Writes it now, if there is one.
  void WriteStatus();

 private:
  using Clock = SteadyClock;
  struct Peer {
    int rank = 0;
    std::string host = {};
    Clock::time_point heard = {};
    int64_t updates = 0;
  };

  struct Progress {
    std::optional<int64_t> last = {};
    Clock::time_point changed = {};
  };

  Peer* FindPeer(int rank);
  bool TakeMessages();
  void Tend(Clock::time_point now);
  void CheckPeers(Clock::time_point now);
  void CheckProgress(Clock::time_point now);

  Transport* transport_;
  Options options_;
  IdleWait wait_;
  std::vector<Peer> peers_;
  int64_t updates_ = 0;
  std::vector<Progress> progress_;  // of options_.progress
  Clock::time_point tended_;
  Clock::time_point beaten_;
  Clock::time_point status_written_ = {};
  std::string status_path_;
  bool status_failed_ = false;  // a file could not be written, which was said
  std::string host_;
};

}  // namespace lopt
