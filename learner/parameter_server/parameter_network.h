#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/environment.h"
#include "lopt/learner/elastic/connections.h"
#include "lopt/learner/elastic/peer_log.h"
#include "lopt/learner/elastic/pulsed_connections.h"
#include "lopt/learner/parameter_server/parameter_model.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// Throws Error unless the server is one of so many.
void CheckServerNumber(int64_t server, int64_t servers);

// The transports of servers and workers that are connected to each other by frames, as an elastic
// learner and its workers are (learner/elastic/frame.h), but with other contents:
//   kJoin     worker to server, first: ParameterJoin
//   kWelcome  server to worker: Welcome, whose config is empty
//   kAnswer   worker to server: a message of this kind
//   kTell     server to worker: the same
//   kPulse, kRefused

// Changes with anything below or in parameter_messages.h; none of kElasticProtocol.
inline constexpr int64_t kParameterProtocol = 1001;

// A protocol that another program may speak comes first.
struct ParameterJoin {
  int64_t protocol = kParameterProtocol;
  std::string token = {};
  int64_t worker = 0;
  int64_t workers = 0;  // how many there are, as this one knows it; servers likewise
  int64_t server = 0;   // whom it takes the other side for
  int64_t servers = 0;
  uint64_t digest = 0;  // ParameterModel::digest

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("protocol", protocol);
    visit("token", token);
    visit("worker", worker);
    visit("workers", workers);
    visit("server", server);
    visit("servers", servers);
    visit("digest", digest);
  }
};

// What both sides are told.
struct ParameterLinkOptions {
  int64_t workers = 1;
  std::string token = {};       // empty: none
  double timeout_seconds = 60;  // of a server: silence that ends a connection; 0: none does
  double wait_seconds = 600;    // for the others to be there at first
  std::function<std::chrono::steady_clock::time_point()> now = [] {
    return std::chrono::steady_clock::now();
  };
};

// What the two have in common: this is one process, and what it has to say is not lost at its end.
class ParameterTransport : public Transport {
 public:
  int size() const override { return model_.servers() + static_cast<int>(options_.workers); }
  int ranks_on_host() const override { return 1; }
  int rank_on_host() const override { return 0; }
  int Exit(int exit_code) override { return exit_code; }

 protected:
  using TimePoint = std::chrono::steady_clock::time_point;

  ParameterTransport(const ParameterServerOptions& model, ParameterLinkOptions options)
      : model_(model), options_(std::move(options)), begun_(options_.now()) {}

  double SecondsSince(TimePoint time) const { return SecondsBetween(time, options_.now()); }

  const ParameterModel model_;
  const ParameterLinkOptions options_;
  const TimePoint begun_;
  std::optional<TimePoint> farewell_ = {};  // since when

 private:
  void DoAbort(int exit_code) override;
};

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

// Of a worker, which joins all servers. Poll throws Error if a server refuses it, has gone or is
// silent, or was not there in time.
class ParameterWorkerTransport final : public ParameterTransport {
 public:
  // Makes a connection, number 1, that is open or will close.
  using Connect = std::function<std::unique_ptr<Connections>()>;
  // Each server's name for people, and how to reach it.
  using Servers = std::vector<std::pair<std::string, Connect>>;

  // Throws Error unless there are as many servers as the model has, and that worker.
  ParameterWorkerTransport(const ParameterServerOptions& model, int worker,
                           ParameterLinkOptions options, const Servers& servers);

  int rank() const override { return model_.servers() + worker_; }
  std::string Description() const override;
  // To a server. What is sent before it is there waits for it.
  void Send(int to, int kind, std::vector<std::byte> bytes) override;
  std::optional<Message> Poll() override;
  void BeginFarewell() override;
  bool FarewellDone() override;
  bool NotifyOnArrival(Wakeup* wakeup) override;

 private:
  struct Link {
    std::string name = {};
    Connect connect = {};
    std::unique_ptr<PulsedConnections> connection = {};
    TimePoint tried = {};                        // to connect
    std::string why = {};                        // the last connection has ended
    std::string said = {};                       // of it, in the log
    std::optional<double> timeout_seconds = {};  // none: it has not welcomed this worker
    std::vector<Frame> waiting = {};             // until then
    TimePoint heard = {};
    int64_t arrived = 0;                   // of Connections
    std::optional<std::string> lost = {};  // the Error that ended it
    bool closing = false;
  };

  void Open(int server);
  void Tend(int server);
  std::optional<Message> PollServer(int server);
  std::optional<Message> Take(int server, const Frame& frame);

  const int worker_;
  std::vector<Link> links_;
  Wakeup* wakeup_ = nullptr;
  size_t next_ = 0;  // server that is polled
  TimePoint tended_;
};

}  // namespace lopt
