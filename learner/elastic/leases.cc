#include "lopt/learner/elastic/leases.h"

#include <algorithm>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/learner/job/messages.h"

namespace lopt {

Leases::Leases(int64_t ranks, int64_t windows_per_update, const ElasticOptions& options,
               Connections* connections, Peers* peers)
    : options_(options), connections_(connections), peers_(peers) {
  Require(options.snapshot_updates >= 1, "snapshot_updates must be at least 1, got {}",
          options.snapshot_updates);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    ranks_.push_back({.log = RankLog(windows_per_update)});
  }
}

void Leases::Know(std::vector<AnswerRules> rules) {
  rules_ = std::move(rules);
  for (const AnswerRules& of_rank : rules_) {
    most_answer_bytes_ = std::max(most_answer_bytes_, of_rank.MostBytes());
  }
}

void Leases::Tell(int number, int kind, const FrameBody& body) {
  Rank& rank = RankOf(number);
  if (!rank.log.KnowsRules()) {
    Require(rules_.size() == ranks_.size(),
            "ElasticTransport: the experiment is to be known before a rank is told anything");
    rank.log.Know(std::move(rules_[static_cast<size_t>(number) - 1]));
  }
  rank.log.Add(kind, body);
  // Not all ranks at the same update.
  if (kind == kWeights && (rank.log.weights() + number) % options_.snapshot_updates == 0) {
    rank.log.AddSnapshot();
  }
  if (!rank.leaving) {
    TellAll(&rank);
  }
}

std::optional<Message> Leases::Take(int64_t connection, const Frame& frame) {
  const auto found = rank_of_lease_.find(frame.lease);
  if (found == rank_of_lease_.end()) {
    Require(frame.lease > 0 && frame.lease <= leases_, "there is no lease {}", frame.lease);
    return std::nullopt;  // it has ended meanwhile
  }
  const int number = found->second;
  Rank& rank = RankOf(number);
  Require(rank.holder == connection, "lease {} is another's", frame.lease);
  const bool wanted = rank.log.Take(frame.kind, BytesOf(frame));
  rank.since = peers_->at(connection).answered = options_.now();
  HandOver(&rank);
  if (!wanted) {
    return std::nullopt;
  }
  return Message{.from = number, .kind = frame.kind, .bytes = BytesOf(frame)};
}

int64_t Leases::Reopen(int number) {
  Rank& rank = RankOf(number);
  rank.log.Reopen();
  return rank.holder;
}

int64_t Leases::End(int64_t connection) {
  int64_t ended = 0;
  for (Rank& rank : ranks_) {
    if (rank.holder == connection) {
      ++ended;
      EndLease(&rank);
    }
    if (rank.heir == connection && !options_.keeps_dead_heirs) {
      rank.heir = 0;
    }
  }
  return ended;
}

bool Leases::Owed() const {
  return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.log.Owes(); });
}

std::map<int64_t, Leases::Debt> Leases::Debts() const {
  std::map<int64_t, Debt> debts;
  for (const Rank& rank : ranks_) {
    if (rank.holder == 0) {
      continue;
    }
    Debt& debt = debts[rank.holder];
    ++debt.leases;
    if (rank.log.Answered()) {
      continue;
    }
    if (debt.answers++ == 0 || rank.since < debt.since) {
      debt.worker = NumberOf(rank) - 1;
      debt.since = rank.since;
    }
  }
  return debts;
}

std::map<int64_t, int64_t> Leases::Loads() const {
  std::map<int64_t, int64_t> loads;
  for (const auto& [connection, peer] : *peers_) {
    if (peer.equipped) {
      loads[connection] = 0;
    }
  }
  for (const Rank& rank : ranks_) {
    const auto load = loads.find(rank.leaving ? rank.heir : rank.holder);
    if (load != loads.end()) {
      ++load->second;
    }
  }
  return loads;
}

// Where one more costs least.
int64_t Leases::LeastLoaded(const std::map<int64_t, int64_t>& loads) const {
  return std::ranges::min_element(loads, {},
                                  [&](const auto& load) {
                                    return static_cast<double>(load.second + 1) /
                                           static_cast<double>(peers_->at(load.first).threads);
                                  })
      ->first;
}

void Leases::ShareOut() {
  std::map<int64_t, int64_t> loads = Loads();
  if (loads.empty()) {
    return;
  }
  for (Rank& rank : ranks_) {
    if (rank.holder == 0) {
      const int64_t to = LeastLoaded(loads);
      ++loads[to];
      Grant(&rank, to);
    }
  }
  Balance(std::move(loads));
}

// Moves ranks while that makes the most loaded less so than the other becomes.
void Leases::Balance(std::map<int64_t, int64_t> loads) {
  for (;;) {
    const int64_t to = LeastLoaded(loads);
    const auto load = [&](int64_t connection, int64_t more) {
      return static_cast<double>(loads[connection] + more) /
             static_cast<double>(peers_->at(connection).threads);
    };
    Rank* chosen = nullptr;
    for (Rank& rank : ranks_) {
      if (!rank.leaving && (chosen == nullptr || load(rank.holder, 0) > load(chosen->holder, 0))) {
        chosen = &rank;
      }
    }
    if (chosen == nullptr || load(to, 1) >= load(chosen->holder, 0)) {
      return;
    }
    --loads[chosen->holder];
    ++loads[to];
    Leave(chosen, to);
  }
}

void Leases::Grant(Rank* rank, int64_t connection) {
  rank->holder = connection;
  rank->lease = ++leases_;
  rank->log.Restart();
  const int number = NumberOf(*rank);
  rank_of_lease_[rank->lease] = number;
  connections_->Send(connection,
                     {.type = FrameType::kGrant,
                      .lease = rank->lease,
                      .body = MakeBody(ToWire(LeasedBlock{.first = number - 1, .count = 1}))});
  TellAll(rank);
}

void Leases::EndLease(Rank* rank) {
  rank_of_lease_.erase(rank->lease);
  rank->holder = rank->lease = 0;
  rank->leaving = false;
  rank->heir = 0;
}

void Leases::Leave(Rank* rank, int64_t heir) {
  if (!rank->log.EndsWithStates()) {
    rank->log.AddSnapshot();
  }
  TellAll(rank);
  rank->leaving = true;
  rank->heir = heir;
  HandOver(rank);
}

// A rank that leaves and whose states are here goes to its heir.
void Leases::HandOver(Rank* rank) {
  if (!rank->leaving || !rank->log.Answered() || !rank->log.OnlyStatesTold()) {
    return;
  }
  connections_->Send(rank->holder, {.type = FrameType::kRevoke, .lease = rank->lease});
  const int64_t heir = rank->heir;
  EndLease(rank);
  Grant(rank, heir != 0 ? heir : LeastLoaded(Loads()));
}

void Leases::TellAll(Rank* rank) {
  if (rank->holder == 0) {
    return;
  }
  Peer& peer = peers_->at(rank->holder);
  peer.Allow(most_answer_bytes_, rank->holder, connections_);
  if (rank->log.Answered()) {
    rank->since = options_.now();
  }
  while (std::optional<RankLog::Told> told = rank->log.Tell()) {
    if (told->kind == kWeights) {
      ++(told->again ? counts_.again : counts_.handed_out);
    }
    const bool same = peer.told == told->body;
    peer.told = told->body;
    connections_->Send(rank->holder, {.type = same ? FrameType::kTellSame : FrameType::kTell,
                                      .lease = rank->lease,
                                      .kind = told->kind,
                                      .body = same ? nullptr : std::move(told->body)});
  }
}

}  // namespace lopt
