#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lopt/learner/elastic/connections.h"
#include "lopt/learner/elastic/peer_log.h"
#include "lopt/learner/elastic/pulsed_connections.h"
#include "lopt/learner/parameter_server/parameter_transport.h"

namespace lopt {

// Throws Error unless the server is one of so many.
void CheckServerNumber(int64_t server, int64_t servers);

// Of a server, for whoever joins it as one of the workers. A worker that has gone without leaving
// is a message kWorkerLost of its rank, and cannot come back. Poll throws Error if workers have not
// come in time.
class ParameterServerTransport final : public ParameterTransport {
 public:
  ParameterServerTransport(const ParameterServerOptions& model, int server,
                           ParameterLinkOptions options, std::unique_ptr<Connections> connections);

  int rank() const override { return server_; }
  std::string Description() const override { return connections_.Description(); }
  // To a worker, also one that has not come yet; nothing comes of it if it has gone.
  void Send(int to, int kind, std::vector<std::byte> bytes) override;
  std::optional<Message> Poll() override;
  void BeginFarewell() override;
  // Workers close when they have left; those that have not come yet may hear why the server ends.
  // Who does neither is cut short.
  bool FarewellDone() override;
  bool NotifyOnArrival(Wakeup* wakeup) override;

 private:
  struct Peer {
    std::string name = {};  // for the log
    TimePoint heard = {};
    int64_t arrived = 0;           // of Connections
    std::optional<int> rank = {};  // none: it has not joined
  };

  void Handle(const Connections::Event& event);
  void Open(int64_t connection, const std::string& where);
  void Take(int64_t connection, Peer* peer, const Frame& frame);
  void Join(int64_t connection, Peer* peer, const Frame& frame);
  void Refuse(int64_t connection, const std::string& why);
  // It has gone or is to go; `why` may be empty.
  void Lose(int64_t connection, const std::string& why);
  void Tend();
  void CheckWaiting() const;
  bool AllHaveCome() const { return std::ssize(come_) == options_.workers; }

  const int server_;
  PulsedConnections connections_;
  std::map<int64_t, Peer> peers_;              // by connection
  std::map<int, int64_t> connected_;           // connections of workers, by rank
  std::set<int> come_;                         // ranks that have been here
  std::set<int> left_;                         // ranks that have said that they leave
  std::map<int, std::vector<Frame>> waiting_;  // for ranks that have not come
  std::deque<Message> inbox_;
  TimePoint tended_;
  PeerLog log_;
};

}  // namespace lopt
