#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/learner/elastic/connections.h"
#include "lopt/learner/elastic/elastic_options.h"
#include "lopt/learner/elastic/frame.h"
#include "lopt/learner/elastic/leases.h"
#include "lopt/learner/elastic/peer.h"
#include "lopt/learner/elastic/peer_log.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

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
  int size() const override { return static_cast<int>(leases_.ranks()) + 1; }
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

  const LeaseCounts& counts() const { return leases_.counts(); }
  // Connections that take leases.
  int64_t workers() const;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  using Tone = PeerLog::Tone;

  void DoAbort(int exit_code) override;

  void Begin();
  void End(const std::vector<std::byte>& how);
  void TellEnd(int64_t connection);
  void CloseStrangers();
  void Handle(const Connections::Event& event);
  void Open(int64_t connection, const std::string& where);
  void Take(int64_t connection, Peer* peer, const Frame& frame);
  void Join(int64_t connection, Peer* peer, const Frame& frame);
  void TakePulse(Peer* peer, const Frame& frame) const;
  void Equip(int64_t connection, Peer* peer, const Frame& frame);
  void Log(const Peer& peer, Tone tone, const std::string& line);
  // `why` is for the process and the log, `for_log` follows there.
  void Refuse(int64_t connection, const std::string& why, const std::string& for_log = "");
  // The same without a word to it, so that it may come again.
  void Drop(int64_t connection, const std::string& why);
  // Its leases end; `why` is for the log.
  void Forget(int64_t connection, const std::string& why);

  void Tend();
  void CheckStop();
  // Of frames that are on their way; more of them is a sign of life, and of progress.
  void NoteArrived(TimePoint now);
  // The connections whose time is over, and why, as it is after `away` seconds without a look.
  std::vector<std::pair<int64_t, std::string>> FindSilent(TimePoint now, double away);
  std::vector<std::pair<int64_t, std::string>> FindOverdue(TimePoint now, double away);
  void CheckWaiting(TimePoint now, double away);

  MetaTrainConfig config_;
  std::string version_;
  bool allow_isa_change_;
  ElasticOptions elastic_;
  std::unique_ptr<Connections> connections_;
  Peers peers_;
  Leases leases_;
  std::deque<Message> inbox_;
  FrameBody sent_;  // the body sent last, which the next rank often gets as well
  // The learner's own, with the device of the run, once that is known; empty: not sent yet.
  std::vector<std::byte> hello_;
  bool begun_ = false;
  bool waiting_ = false;  // said so
  TimePoint waiting_since_ = {};
  bool stopping_ = false;  // the job was told to stop: who comes now gets no lease
  bool said_stop_ = false;
  FrameBody end_;  // how the job has ended, since it has
  TimePoint tended_;
  TimePoint pulsed_;
  PeerLog log_;
  TimePoint farewell_ = {};
};

}  // namespace lopt
