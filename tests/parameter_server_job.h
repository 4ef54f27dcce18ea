#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/learner/elastic/grpc_connections.h"
#include "lopt/learner/job/wire.h"
#include "lopt/learner/parameter_server/parameter_server_transport.h"
#include "lopt/learner/parameter_server/parameter_serving.h"
#include "lopt/learner/parameter_server/parameter_worker_transport.h"
#include "lopt/learner/transport/local_transport.h"
#include "tests/wait_until.h"
#include "tests/watched_transport.h"

namespace lopt {

inline Config SgdConfig(double learning_rate) {
  return Config::Parse(R"({"type": "SGD", "learning_rate": )" + std::to_string(learning_rate) + "}",
                       "test");
}

// Variable "w" [2, 3] on server 0 of 2, "b" [3] on server 1; layer "e" of width 2.
inline ParameterServerOptions SmallModel(int64_t servers = 1) {
  return {.variables = {{.name = "w", .shape = {2, 3}, .initial = {.mean = 0, .stddev = 1}},
                        {.name = "b", .shape = {3}}},
          .layers = {{.name = "e", .width = 2, .ids = 1000, .initial = {.mean = 1}}},
          .optimizer = SgdConfig(0.1),
          .key = KeyFromSeed(7),
          .servers = servers};
}

// What carries messages between servers and workers.
enum class Carriage { kLocal, kGrpc };

inline std::string ToString(Carriage carriage) {
  return carriage == Carriage::kLocal ? "local" : "gRPC";
}

// Those that this program has.
inline std::vector<Carriage> Carriages() {
  if (!FindModule(kGrpcModule)) return {Carriage::kLocal};
  return {Carriage::kLocal, Carriage::kGrpc};
}

// Where connections that were made by ListenGrpc listen.
inline std::string AddressOf(const std::string& description) {
  return description.substr(description.rfind(' ') + 1);
}

// The ranks of a job over gRPC, all in this process.
inline std::vector<std::unique_ptr<Transport>> MakeGrpcTransports(
    const ParameterServerOptions& options, int workers, ParameterLinkOptions link = {}) {
  link.workers = workers;
  std::vector<std::unique_ptr<Transport>> transports;
  ParameterWorkerTransport::Servers servers;
  for (int s = 0; s < static_cast<int>(options.servers); ++s) {
    transports.push_back(std::make_unique<ParameterServerTransport>(
        options, s, link, ListenGrpc(ParseNetAddress("127.0.0.1:0"), {})));
    const std::string address = AddressOf(transports.back()->Description());
    servers.emplace_back(address, [=] { return JoinGrpc(ParseNetAddress(address), {}); });
  }
  for (int w = 0; w < workers; ++w) {
    transports.push_back(std::make_unique<ParameterWorkerTransport>(options, w, link, servers));
  }
  return transports;
}

// Runs all processes of a job over gRPC as threads. Throws what the first of them threw, of servers
// first, once all have ended.
inline void RunJobOverGrpc(const ParameterServerOptions& options, const ParameterJobOptions& job,
                           const std::function<void(ParameterClient&)>& work) {
  const auto servers = static_cast<int>(options.servers);
  std::vector<std::promise<std::string>> listening(static_cast<size_t>(servers));
  std::vector<std::shared_future<std::string>> addresses;
  for (auto& promise : listening) addresses.push_back(promise.get_future().share());
  std::vector<std::exception_ptr> errors(static_cast<size_t>(servers + job.workers));
  const auto run = [&](int rank) {
    ParameterJobOptions own = job;
    own.network = ParameterNetwork{.files = {.insecure = true}};
    const auto s = static_cast<size_t>(rank);
    try {
      if (rank < servers) {
        own.network->server = rank;
        own.network->listen = "127.0.0.1:0";
        own.network->on_listening = [&](const std::string& at) { listening[s].set_value(at); };
      } else {
        own.network->worker = rank - servers;
        for (const auto& address : addresses) own.network->servers.push_back(address.get());
      }
      RunParameterJob(options, own, work);
    } catch (...) {
      errors[s] = std::current_exception();
      const bool silent = rank < servers && addresses[s].wait_for(std::chrono::seconds(0)) !=
                                                std::future_status::ready;
      if (silent) listening[s].set_exception(errors[s]);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < servers + job.workers; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

inline void RunJobOver(Carriage carriage, const ParameterServerOptions& options,
                       const ParameterJobOptions& job,
                       const std::function<void(ParameterClient&)>& work) {
  carriage == Carriage::kGrpc ? RunJobOverGrpc(options, job, work)
                              : void(RunParameterJob(options, job, work));
}

// Servers and workers of one process, moved on by one thread: workers send messages as they like.
class ServersByHand {
 public:
  ServersByHand(const ParameterServerOptions& options, int workers,
                Carriage carriage = Carriage::kLocal)
      : model_(options),
        transports_(carriage == Carriage::kGrpc ? MakeGrpcTransports(options, workers)
                                                : MakeLocalTransports(model_.servers() + workers)),
        numbers_(transports_.size()),
        on_their_way_(transports_.size()),
        inboxes_(transports_.size()) {
    for (int s = 0; s < model_.servers(); ++s) {
      watched_.push_back(std::make_unique<WatchedTransport>(
          transports_[static_cast<size_t>(s)].get(),
          [this](int rank, int) { ++on_their_way_[static_cast<size_t>(rank)]; }, [](int, int) {}));
      servers_.push_back(
          std::make_unique<ParameterServing>(options, watched_.back().get(), "", false));
    }
  }

  const ParameterModel& model() const { return model_; }
  ParameterServing& server(int s = 0) { return *servers_[static_cast<size_t>(s)]; }
  Transport& worker(int w) { return *transports_[Rank(w)]; }

  ServerRequest Begin(int w) {
    return {.number = ++numbers_[static_cast<size_t>(w)], .digest = model_.digest()};
  }
  template <class Request>
  void Send(int w, int kind, const Request& request, int s = 0) {
    SendBytes(w, kind, ToWire(request), s);
  }
  void SendBytes(int w, int kind, std::vector<std::byte> bytes, int s = 0) {
    worker(w).Send(s, kind, std::move(bytes));
    WaitUntil("the server has the message", [&] {
      Collect(w);
      return server(s).Poll();
    });
  }
  void Leave(int w, int s = 0) { SendBytes(w, kLeaveServer, {}, s); }
  // The next answer to a worker; none if there is none.
  std::optional<ServerAnswer> Answer(int w) {
    int64_t& on_their_way = on_their_way_[Rank(w)];
    std::deque<Message>& inbox = inboxes_[Rank(w)];
    if (on_their_way == 0) return std::nullopt;
    WaitUntil("the answer has come", [&] {
      Collect(w);
      return !inbox.empty();
    });
    --on_their_way;
    const Message message = std::move(inbox.front());
    inbox.pop_front();
    Require(message.kind == kServerAnswer, "the worker got a message of kind {}", message.kind);
    return FromWire<ServerAnswer>(message.bytes);
  }

 private:
  size_t Rank(int w) const { return static_cast<size_t>(model_.servers() + w); }
  void Collect(int w) {
    while (std::optional<Message> message = worker(w).Poll()) {
      inboxes_[Rank(w)].push_back(std::move(*message));
    }
  }

  ParameterModel model_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Transport>> watched_;
  std::vector<std::unique_ptr<ParameterServing>> servers_;
  std::vector<int64_t> numbers_;
  std::vector<int64_t> on_their_way_;         // answers, by rank
  std::vector<std::deque<Message>> inboxes_;  // by rank
};

}  // namespace lopt
