#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/learner/elastic/connections.h"
#include "lopt/learner/elastic/pulsed_connections.h"
#include "lopt/learner/parameter_server/parameter_transport.h"

namespace lopt {

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
