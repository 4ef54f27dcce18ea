#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "lopt/learner/elastic/answer_rules.h"
#include "lopt/learner/elastic/connections.h"
#include "lopt/learner/elastic/elastic_options.h"
#include "lopt/learner/elastic/frame.h"
#include "lopt/learner/elastic/peer.h"
#include "lopt/learner/elastic/rank_log.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// What became of the weights that were given to workers.
struct LeaseCounts {
  int64_t handed_out = 0;  // to a rank, each once
  int64_t again = 0;       // once more, since a process had gone
};

// Which process works for which rank. Ranks are numbered from 1, and rank r has logical worker
// r - 1. Each is leased to one connection at a time; they are shared out by the connections'
// threads. A rank that is leased anew is brought by its log to where it was.
class Leases {
 public:
  using TimePoint = Peer::TimePoint;

  // `connections` and `peers` outlive this.
  Leases(int64_t ranks, int64_t windows_per_update, const ElasticOptions& options,
         Connections* connections, Peers* peers);

  int64_t ranks() const { return static_cast<int64_t>(ranks_.size()); }
  const LeaseCounts& counts() const { return counts_; }

  // The rules of each rank's answers; to be called once, before any rank is told anything.
  void Know(std::vector<AnswerRules> rules);
  // A message of the learner to a rank. Throws Error if the rules are not known.
  void Tell(int rank, int kind, const FrameBody& body);
  // A frame kAnswer of a connection. Returns the message if it is for the learner. Throws Error if
  // the lease is another's or the answer is against the rules.
  std::optional<Message> Take(int64_t connection, const Frame& frame);
  // The rank's answer that was taken last was no good: it is to be given again. Returns who holds
  // the rank; 0: nobody.
  int64_t Reopen(int rank);
  // Leases the ranks that nobody holds, and moves ranks while that evens out the load.
  void ShareOut();
  // The connection has gone: ends its leases and returns how many there were.
  int64_t End(int64_t connection);

  // Whether the learner waits for an answer of any rank.
  bool Owed() const;
  // What a connection owes.
  struct Debt {
    int64_t leases = 0;   // that it holds
    int64_t answers = 0;  // of them that it has not answered
    // The oldest of these, if there are any.
    int64_t worker = 0;
    TimePoint since = {};
  };
  // Of the connections that hold leases.
  std::map<int64_t, Debt> Debts() const;

 private:
  struct Rank {
    RankLog log;
    int64_t lease = 0;
    int64_t holder = 0;    // a connection; 0: none
    TimePoint since = {};  // the holder owes an answer; where it does
    bool leaving = false;  // to `heir` as soon as its states are here
    int64_t heir = 0;
  };

  Rank& RankOf(int rank) { return ranks_[static_cast<size_t>(rank) - 1]; }
  int NumberOf(const Rank& rank) const { return static_cast<int>(&rank - ranks_.data()) + 1; }
  // By connection that takes leases: the ranks that it has, without those that leave it and with
  // those that come to it.
  std::map<int64_t, int64_t> Loads() const;
  int64_t LeastLoaded(const std::map<int64_t, int64_t>& loads) const;
  void Balance(std::map<int64_t, int64_t> loads);
  void Grant(Rank* rank, int64_t connection);
  void EndLease(Rank* rank);
  void Leave(Rank* rank, int64_t heir);
  void HandOver(Rank* rank);
  void TellAll(Rank* rank);

  const ElasticOptions& options_;
  Connections* connections_;
  Peers* peers_;
  std::vector<Rank> ranks_;         // from rank 1 on
  std::vector<AnswerRules> rules_;  // of each of them; moved there with its first message
  size_t most_answer_bytes_ = 0;    // by all of them
  std::unordered_map<int64_t, int> rank_of_lease_;
  int64_t leases_ = 0;
  LeaseCounts counts_;
};

}  // namespace lopt
