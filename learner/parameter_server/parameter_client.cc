#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/utf8.h"
#include "lopt/learner/job/wire.h"
#include "lopt/learner/parameter_server/parameter_messages.h"
#include "lopt/learner/parameter_server/parameter_model.h"
#include "lopt/learner/parameter_server/take_messages.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {
namespace {

// Bytes of a server's text that an Error may have.
constexpr size_t kMostText = 2000;

}  // namespace

// What is sent to servers and what they answer.
class ParameterClient::Requests {
 public:
  Requests(const ParameterServerOptions& options, Transport* transport)
      : model_(options),
        transport_(transport),
        numbers_(static_cast<size_t>(model_.servers())),
        answers_(static_cast<size_t>(model_.servers())) {
    Require(transport->rank() >= model_.servers(),
            "parameter server: rank {} is a server, of which there are {}; wanted a worker's rank",
            transport->rank(), model_.servers());
  }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  const ParameterModel& model() const { return model_; }
  const Transport& transport() const { return *transport_; }
  bool left() const { return left_; }

  // What the next request to a server begins with.
  ServerRequest Begin(int server) {
    return {.number = ++numbers_[static_cast<size_t>(server)], .digest = model_.digest()};
  }
  template <class Request>
  void Send(int server, int kind, const Request& request) {
    Require(!left_, "parameter server: worker {} has left and asks for something",
            transport_->rank() - model_.servers());
    transport_->Send(server, kind, ToWire(request));
    awaited_.push_back(server);
  }
  // What the servers answer to which something was sent, by server. Throws Error if one refuses,
  // once all have answered.
  std::vector<ServerAnswer> Await() {
    TakeMessagesUntil(
        transport_, [this](const Message& message) { Take(message); },
        [this] {
          return std::ranges::all_of(awaited_, [this](int server) {
            return answers_[static_cast<size_t>(server)].has_value();
          });
        });
    std::vector<ServerAnswer> answers(answers_.size());
    std::string errors;
    for (const int server : std::exchange(awaited_, {})) {
      auto& answer = answers_[static_cast<size_t>(server)];
      if (!answer->error.empty()) {
        errors += fmt::format("{}server {}: {}", errors.empty() ? "" : "; ", server,
                              PlainText(answer->error, kMostText));
      }
      answers[static_cast<size_t>(server)] = std::move(*answer);
      answer.reset();
    }
    Require(errors.empty(), "{}", errors);
    return answers;
  }
  void Leave() {
    if (std::exchange(left_, true)) return;
    for (int server = 0; server < model_.servers(); ++server) {
      transport_->Send(server, kLeaveServer, {});
    }
  }

 private:
  void Take(const Message& message) {
    if (message.from >= model_.servers()) {
      spdlog::warn("parameter client: rank {} has sent a message of kind {}, which is dropped",
                   message.from, message.kind);
      return;
    }
    const auto server = static_cast<size_t>(message.from);
    if (message.kind == kServerFailed) {
      Fail("server {} has failed: {}", message.from,
           PlainText(FromWire<std::string>(message.bytes), kMostText));
    }
    Require(message.kind == kServerAnswer, "server {} has sent a message of kind {}, wanted {}",
            message.from, message.kind, static_cast<int>(kServerAnswer));
    auto answer = FromWire<ServerAnswer>(message.bytes);
    Require(std::ranges::count(awaited_, message.from) == 1 && !answers_[server] &&
                answer.number == numbers_[server],
            "server {} has answered request {}, which does not wait for an answer", message.from,
            answer.number);
    answers_[server] = std::move(answer);
  }

  ParameterModel model_;
  Transport* transport_;
  std::vector<int64_t> numbers_;  // requests made, by server
  std::vector<int> awaited_;      // servers to which something was sent
  std::vector<std::optional<ServerAnswer>> answers_;
  bool left_ = false;
};

namespace {

ParameterVersions VersionsOf(const std::vector<ServerAnswer>& answers) {
  ParameterVersions versions;
  for (const ServerAnswer& answer : answers) versions.push_back(answer.version);
  return versions;
}

// The different ids of each server, in the order of their first use, and where the vector of each
// place is among them.
struct SplitIds {
  struct Place {
    int server;
    size_t index;
  };
  SplitIds(const ParameterModel& model, std::span<const int64_t> ids)
      : by_server(static_cast<size_t>(model.servers())) {
    std::unordered_map<int64_t, Place> known;
    for (const int64_t id : ids) {
      const int server = model.ServerOfId(id);
      auto& theirs = by_server[static_cast<size_t>(server)];
      const auto [at, added] = known.emplace(id, Place{server, theirs.size()});
      if (added) theirs.push_back(id);
      places.push_back(at->second);
    }
  }

  std::vector<std::vector<int64_t>> by_server;
  std::vector<Place> places;
};

// What goes to each server of some gradients, which are good.
std::vector<PushRequest> SplitGradients(const ParameterModel& model,
                                        const ParameterGradients& gradients) {
  std::vector<PushRequest> requests(static_cast<size_t>(model.servers()));
  for (const auto& [name, array] : gradients.dense) {
    const auto numbers = array.As<float>();
    requests[static_cast<size_t>(model.ServerOf(name))].dense.push_back(
        {.name = name, .shape = array.shape(), .numbers = {numbers.begin(), numbers.end()}});
  }
  for (const SparseGradient& sparse : gradients.sparse) {
    const auto width = model.Layer(sparse.layer).width;
    std::vector<VectorNumbers> parts(requests.size());
    for (size_t i = 0; i < sparse.ids.size(); ++i) {
      VectorNumbers& part = parts[static_cast<size_t>(model.ServerOfId(sparse.ids[i]))];
      part.ids.push_back(sparse.ids[i]);
      const auto row = sparse.rows.begin() + static_cast<int64_t>(i) * width;
      part.rows.insert(part.rows.end(), row, row + width);
    }
    for (size_t server = 0; server < parts.size(); ++server) {
      if (parts[server].ids.empty()) continue;
      parts[server].layer = sparse.layer;
      requests[server].sparse.push_back(std::move(parts[server]));
    }
  }
  for (PushRequest& request : requests) request.loss = gradients.loss;
  return requests;
}

// Takes a server's variables, which were asked for by these names.
void TakeVariables(const ParameterModel& model, int server, const std::vector<std::string>& asked,
                   const std::vector<VariableNumbers>& got, NamedArrays* values) {
  Require(asked.size() == got.size(), "server {} was asked for {} variables and sent {}", server,
          asked.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const Shape& shape = model.Variable(asked[i]).shape;
    Require(got[i].name == asked[i] && got[i].shape == shape &&
                std::ssize(got[i].numbers) == NumElements(shape),
            "server {} was asked for variable '{}' {} and sent '{}' {}", server, asked[i],
            ToString(shape), PlainText(got[i].name), ToString(got[i].shape));
    values->Set(asked[i], Array::Of<float>(shape, got[i].numbers));
  }
}

}  // namespace

ParameterClient::ParameterClient(const ParameterServerOptions& options, Transport* transport)
    : requests_(std::make_unique<Requests>(options, transport)) {}

ParameterClient::~ParameterClient() = default;

int ParameterClient::worker() const {
  return requests_->transport().rank() - requests_->model().servers();
}

int ParameterClient::workers() const {
  return requests_->transport().size() - requests_->model().servers();
}

PulledVariables ParameterClient::PullVariables(PulledParams which) {
  std::vector<std::string> names;
  for (const DenseVariable& variable : requests_->model().options().variables) {
    names.push_back(variable.name);
  }
  return PullVariables(names, which);
}

PulledVariables ParameterClient::PullVariables(const std::vector<std::string>& names,
                                               PulledParams which) {
  const ParameterModel& model = requests_->model();
  std::vector<std::vector<std::string>> asked(static_cast<size_t>(model.servers()));
  for (const std::string& name : names) {
    model.Variable(name);
    auto& theirs = asked[static_cast<size_t>(model.ServerOf(name))];
    Require(std::ranges::count(theirs, name) == 0,
            "parameter server: variable '{}' is asked for twice", name);
    theirs.push_back(name);
  }
  for (int server = 0; server < model.servers(); ++server) {
    requests_->Send(server, kPullVariables,
                    VariableRequest{.request = requests_->Begin(server),
                                    .names = asked[static_cast<size_t>(server)],
                                    .which = which});
  }
  const std::vector<ServerAnswer> answers = requests_->Await();
  PulledVariables pulled{.values = {}, .versions = VersionsOf(answers)};
  for (size_t server = 0; server < answers.size(); ++server) {
    TakeVariables(model, static_cast<int>(server), asked[server], answers[server].variables,
                  &pulled.values);
  }
  return pulled;
}

Array ParameterClient::PullEmbeddingVectors(const std::string& layer, std::span<const int64_t> ids,
                                            PulledParams which) {
  const ParameterModel& model = requests_->model();
  const EmbeddingLayer& options = model.Layer(layer);
  model.CheckIds(options, ids);
  const SplitIds split(model, ids);
  for (size_t server = 0; server < split.by_server.size(); ++server) {
    if (split.by_server[server].empty()) continue;
    const auto rank = static_cast<int>(server);
    requests_->Send(rank, kPullVectors,
                    VectorRequest{.request = requests_->Begin(rank),
                                  .layer = layer,
                                  .ids = split.by_server[server],
                                  .which = which});
  }
  const std::vector<ServerAnswer> answers = requests_->Await();
  const auto width = static_cast<size_t>(options.width);
  for (size_t server = 0; server < answers.size(); ++server) {
    Require(answers[server].vectors.size() == split.by_server[server].size() * width,
            "server {} was asked for {} vectors of embedding layer '{}' of width {} and sent {} "
            "numbers",
            server, split.by_server[server].size(), layer, width, answers[server].vectors.size());
  }
  Array vectors(DType::kFloat32, {std::ssize(ids), options.width});
  auto to = vectors.As<float>().begin();
  for (const SplitIds::Place& place : split.places) {
    const auto& from = answers[static_cast<size_t>(place.server)].vectors;
    to = std::copy_n(from.begin() + static_cast<int64_t>(place.index * width), width, to);
  }
  return vectors;
}

PushResult ParameterClient::PushGradients(const ParameterGradients& gradients,
                                          const ParameterVersions& versions) {
  const ParameterModel& model = requests_->model();
  model.CheckGradients(gradients);
  Require(
      std::ssize(versions) == model.servers(),
      "parameter server: gradients want the versions of {} servers, as they were pulled, got {}",
      model.servers(), versions.size());
  std::vector<PushRequest> requests = SplitGradients(model, gradients);
  for (int server = 0; server < model.servers(); ++server) {
    PushRequest& request = requests[static_cast<size_t>(server)];
    request.request = requests_->Begin(server);
    request.version = versions[static_cast<size_t>(server)];
    requests_->Send(server, kPushGradients, request);
  }
  const std::vector<ServerAnswer> answers = requests_->Await();
  PushResult result{.refused = {}, .versions = VersionsOf(answers)};
  for (size_t server = 0; server < answers.size(); ++server) {
    if (!answers[server].stale) continue;
    result.refused += fmt::format(
        "{}server {} is at version {} and refuses gradients of version {}, more than {} behind",
        result.refused.empty() ? "" : "; ", server, answers[server].version, versions[server],
        model.options().staleness.value_or(0));
  }
  return result;
}

void ParameterClient::Save() {
  for (int server = 0; server < requests_->model().servers(); ++server) {
    requests_->Send(server, kSaveServer, requests_->Begin(server));
  }
  requests_->Await();
}

void ParameterClient::Leave() { requests_->Leave(); }

}  // namespace lopt
