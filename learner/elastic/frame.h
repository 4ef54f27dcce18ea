#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lopt/learner/job/messages.h"

namespace lopt {

// What travels between an elastic learner and its workers.

// Changes with anything below, in frame_parts.h, learner/job/messages.h or elastic.proto.
inline constexpr int64_t kElasticProtocol = 2;

// Of the text that workers say.
inline constexpr size_t kMostTokenBytes = 1024;

enum class FrameType : int {
  kJoin = 1,      // worker to learner, first: JoinRequest
  kWelcome = 2,   // learner to worker: Welcome; make the experiment
  kEquipped = 3,  // worker to learner: Equipment; it can take leases
  kGrant = 4,     // learner to worker: LeasedBlock, to be computed under this lease from now on
  kRevoke = 5,    // learner to worker: the lease has ended
  kTell = 6,      // learner to worker: a message of the rank that is leased, of this kind
  kTellSame = 7,  // the same with the body of the last kTell
  kAnswer = 8,    // worker to learner: what the rank that is leased answers, of this kind
  kPulse = 9,     // both ways, at intervals: still there; a worker's may hold an int64_t, another
                  // one whenever its computation has got on
  kAskStop = 10,  // worker to learner: it was told to stop, and with it the job
  kFailed = 11,   // worker to learner, last: the text of an Error that ended its work
  kRefused = 12,  // learner to worker, last: the text that says why
  kEnd = 13,      // learner to worker, last: the text finished, interrupted or failed
};

// Of the other side's words, in bytes, what is said to people.
inline constexpr size_t kMostPeerText = 600;

// Seconds between two pulses where so long a silence ends a connection; 0, where none does: 1.
inline double PulseSeconds(double timeout_seconds) {
  return timeout_seconds > 0 ? std::clamp(timeout_seconds / 8, 0.05, 1.0) : 1.0;
}

using FrameBody = std::shared_ptr<const std::vector<std::byte>>;

struct Frame {
  FrameType type = FrameType::kPulse;
  int64_t lease = 0;  // of kGrant, kRevoke, kTell, kTellSame, kAnswer
  int kind = 0;       // of kTell, kTellSame, kAnswer: a MessageKind
  FrameBody body = {};
};

inline FrameBody MakeBody(std::vector<std::byte> bytes) {
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

// Empty where there is no body.
inline const std::vector<std::byte>& BytesOf(const Frame& frame) {
  static const std::vector<std::byte> none;
  return frame.body ? *frame.body : none;
}

// A protocol that another program may speak comes first.
struct JoinRequest {
  int64_t protocol = kElasticProtocol;
  std::string version = {};  // of the program
  std::string token = {};    // that the learner wants to hear; empty: none

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("protocol", protocol);
    visit("version", version);
    visit("token", token);
  }
};

struct Welcome {
  std::string config = {};     // resolved, as text
  double timeout_seconds = 0;  // silence on either side that ends the connection; 0: never

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("config", config);
    visit("timeout_seconds", timeout_seconds);
  }
};

struct Equipment {
  Hello hello = {};
  int64_t threads = 1;  // by which leases are shared out

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("hello", hello);
    visit("threads", threads);
  }
};

// What a kGrant holds.
struct LeasedBlock {
  int64_t first = 0;  // logical workers [first, first + count)
  int64_t count = 0;

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("first", first);
    visit("count", count);
  }
};

}  // namespace lopt
