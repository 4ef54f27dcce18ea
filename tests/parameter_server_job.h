#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/learner/job/wire.h"
#include "lopt/learner/parameter_server/parameter_serving.h"
#include "lopt/learner/transport/local_transport.h"

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

// Servers and workers of one process, moved on by one thread: workers send messages as they like.
class ServersByHand {
 public:
  ServersByHand(const ParameterServerOptions& options, int workers)
      : model_(options),
        transports_(MakeLocalTransports(model_.servers() + workers)),
        numbers_(transports_.size()) {
    for (int s = 0; s < model_.servers(); ++s) {
      servers_.push_back(std::make_unique<ParameterServing>(
          options, transports_[static_cast<size_t>(s)].get(), "", false));
    }
  }

  const ParameterModel& model() const { return model_; }
  ParameterServing& server(int s = 0) { return *servers_[static_cast<size_t>(s)]; }
  Transport& worker(int w) { return *transports_[static_cast<size_t>(model_.servers() + w)]; }

  ServerRequest Begin(int w) {
    return {.number = ++numbers_[static_cast<size_t>(w)], .digest = model_.digest()};
  }
  template <class Request>
  void Send(int w, int kind, const Request& request, int s = 0) {
    SendBytes(w, kind, ToWire(request), s);
  }
  void SendBytes(int w, int kind, std::vector<std::byte> bytes, int s = 0) {
    worker(w).Send(s, kind, std::move(bytes));
    server(s).Poll();
  }
  void Leave(int w, int s = 0) { SendBytes(w, kLeaveServer, {}, s); }
  // The next answer to a worker; none if there is none.
  std::optional<ServerAnswer> Answer(int w) {
    const std::optional<Message> message = worker(w).Poll();
    if (!message) return std::nullopt;
    Require(message->kind == kServerAnswer, "the worker got a message of kind {}", message->kind);
    return FromWire<ServerAnswer>(message->bytes);
  }

 private:
  ParameterModel model_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<ParameterServing>> servers_;
  std::vector<int64_t> numbers_;
};

}  // namespace lopt
