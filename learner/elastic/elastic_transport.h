#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lopt/learner/elastic/answer_rules.h"
#include "lopt/learner/elastic/connections.h"
#include "lopt/learner/elastic/frame.h"
#include "lopt/learner/elastic/peer_log.h"
#include "lopt/learner/elastic/rank_log.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

struct ElasticOptions {
  // A rank sends its states after so many updates, so that another process can go on from there.
  int64_t snapshot_updates = 8;
  std::string token = {};  // that workers are to say
  // Connections that the job waits for before it begins.
  int64_t wait_for = 0;
  // Whether a worker that is told to stop stops the job.
  bool workers_stop = false;
  // Told to stop while nobody is there to finish the update, the process ends with this code. Null:
  // it waits.
  const std::atomic<bool>* stop = nullptr;
  int stopped_exit_code = 0;
  std::function<std::chrono::steady_clock::time_point()> now = [] {
    return std::chrono::steady_clock::now();
  };
  // A bug that tests of the simulator put in: a rank goes to the process that was to get it, also
  // if that has gone meanwhile.
  bool keeps_dead_heirs = false;
};

// What became of the weights that were given to workers.
struct LeaseCounts {
  int64_t handed_out = 0;  // to a rank, each once
  int64_t again = 0;       // once more, since a process had gone
};

// A learner's transport whose other ranks are worked by whoever is connected. Rank 0 is the learner
// only; each other rank has one logical worker (WorkersOfRank), is there from beginning to end, and
// is leased to one connection at a time: shared out by their threads, leased anew when a connection
// ends, is silent for the config's worker_timeout_seconds, owes an answer and does not get on for
// progress_timeout_seconds, or sends what no worker of this run would send. A rank that is leased
// anew is brought to where it was by its log. So the learner gets from a rank what it would get
// from a process that never fails.
class ElasticTransport final : public Transport {
 public:
  // `config` is resolved and has gather_checkpoints set; `options` are those of the learner.
  ElasticTransport(const MetaTrainConfig& config, const MetaTrainerOptions& options,
                   ElasticOptions elastic, std::unique_ptr<Connections> connections);

  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(ranks_.size()) + 1; }
  int ranks_on_host() const override { return 1; }
  int rank_on_host() const override { return 0; }
  std::string Description() const override { return connections_->Description(); }
  void Send(int to, int kind, std::vector<std::byte> bytes) override;
  std::optional<Message> Poll() override;
  void BeginFarewell() override;
  // Each worker is told how the job has ended, leaves then, and is waited for; so is, for a moment,
  // who comes only now. The farewell of workers that do not take it is cut short.
  bool FarewellDone() override;
  bool NotifyOnArrival(Wakeup* wakeup) override;
  bool RefuseAnswer(int from, const std::string& why) override;
  int Exit(int exit_code) override { return exit_code; }

  // What the ranks run, by which their answers are judged; to be called once, before any rank is
  // told to begin, from any thread that hands on to the one of all other calls.
  void Know(const Experiment& experiment);

  const LeaseCounts& counts() const { return counts_; }
  // Connections that take leases.
  int64_t workers() const;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Peer {
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
  };
  using Tone = PeerLog::Tone;
  struct Rank {
    RankLog log;
    int64_t lease = 0;
    int64_t holder = 0;    // a connection; 0: none
    TimePoint since = {};  // the holder owes an answer; where it does
    bool leaving = false;  // to `heir` as soon as its states are here
    int64_t heir = 0;
  };

  void DoAbort(int exit_code) override;
  Rank& RankOf(int rank) { return ranks_[static_cast<size_t>(rank) - 1]; }

  void Begin();
  void End(const std::vector<std::byte>& how);
  void TellEnd(int64_t connection);
  void CloseStrangers();
  void Handle(const Connections::Event& event);
  void Open(int64_t connection, const std::string& where);
  void Take(int64_t connection, Peer* peer, const Frame& frame);
  void Join(int64_t connection, Peer* peer, const Frame& frame);
  void TakePulse(Peer* peer, const Frame& frame) const;
  // Its frames may have so many bytes from now on, if they might not before.
  void Allow(int64_t connection, Peer* peer, size_t most_bytes);
  void Equip(int64_t connection, Peer* peer, const Frame& frame);
  void TakeAnswer(int64_t connection, const Frame& frame);
  void Log(const Peer& peer, Tone tone, const std::string& line);
  // `why` is for the process and the log, `for_log` follows there.
  void Refuse(int64_t connection, const std::string& why, const std::string& for_log = "");
  // The same without a word to it, so that it may come again.
  void Drop(int64_t connection, const std::string& why);
  // Its leases end; `why` is for the log.
  void Forget(int64_t connection, const std::string& why);

  void ShareOut();
  void Grant(Rank* rank, int64_t connection);
  void EndLease(Rank* rank);
  // By connection that takes leases: the ranks that it has, without those that leave it and with
  // those that come to it.
  std::map<int64_t, int64_t> Loads() const;
  int64_t LeastLoaded(const std::map<int64_t, int64_t>& loads) const;
  void Balance(std::map<int64_t, int64_t> loads);
  void Leave(Rank* rank, int64_t heir);
  void HandOver(Rank* rank);
  void TellAll(Rank* rank);
  void Tend();
  void CheckStop();
  // Of frames that are on their way; more of them is a sign of life, and of progress.
  void NoteArrived(TimePoint now);
  // The connections whose time is over, and why, as it is after `away` seconds without a look.
  std::vector<std::pair<int64_t, std::string>> FindSilent(TimePoint now, double away);
  std::vector<std::pair<int64_t, std::string>> FindOverdue(TimePoint now, double away);
  void CheckWaiting();

  MetaTrainConfig config_;
  std::string version_;
  bool allow_isa_change_;
  ElasticOptions elastic_;
  std::unique_ptr<Connections> connections_;
  std::vector<Rank> ranks_;         // from rank 1 on
  std::vector<AnswerRules> rules_;  // of each of them; moved there with its first message
  size_t most_answer_bytes_ = 0;    // by all of them
  std::map<int64_t, Peer> peers_;   // by connection
  std::unordered_map<int64_t, int> rank_of_lease_;
  std::deque<Message> inbox_;
  FrameBody sent_;                // the body sent last, which the next rank often gets as well
  std::vector<std::byte> hello_;  // the learner's own; empty: not sent yet
  bool begun_ = false;
  bool waiting_ = false;   // said so
  bool stopping_ = false;  // the job was told to stop: who comes now gets no lease
  bool said_stop_ = false;
  FrameBody end_;  // how the job has ended, since it has
  int64_t leases_ = 0;
  LeaseCounts counts_;
  TimePoint tended_;
  TimePoint pulsed_;
  PeerLog log_;
  TimePoint farewell_ = {};
};

}  // namespace lopt
