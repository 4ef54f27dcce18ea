#include "lopt/learner/parameter_server/parameter_serving.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/job/wire.h"
#include "lopt/learner/transport/take_messages.h"

namespace lopt {
namespace {

constexpr const char* kFormatKey = "format";
constexpr const char* kServerFormat = "lopt parameter server 1";

// The number of a request that may be damaged: its first bytes, 0 where there are none.
int64_t NumberOfRequest(const Message& message) {
  int64_t number = 0;
  if (message.bytes.size() >= sizeof number) {
    std::memcpy(&number, message.bytes.data(), sizeof number);
  }
  return number;
}

NamedArrays ReadServerFile(const std::string& path) {
  ArrayFile file = ReadArrayFile(path);
  const auto format = file.metadata.find(kFormatKey);
  Require(format != file.metadata.end() && format->second == kServerFormat,
          "parameter server: {}: wanted a file of format '{}', got '{}'", path, kServerFormat,
          format == file.metadata.end() ? "" : format->second);
  return std::move(file.arrays);
}

void CheckWhich(PulledParams which) {
  Require(which == PulledParams::kTraining || which == PulledParams::kEvaluation,
          "parameter server: there are no params {}; wanted 0, for training, or 1, for evaluation",
          static_cast<int>(which));
}

}  // namespace

std::string ServerFileName(int64_t server, int64_t servers) {
  return fmt::format("server-{}-of-{}.safetensors", server, servers);
}

ParameterServing::ParameterServing(const ParameterServerOptions& options, Transport* transport,
                                   std::string path, bool resume)
    : model_(std::make_shared<ParameterModel>(options)),
      transport_(transport),
      path_(std::move(path)),
      store_(model_, transport->rank()) {
  const int64_t workers = transport->size() - options.servers;
  model_->CheckWorkers(workers);
  for (int rank = model_->servers(); rank < transport->size(); ++rank) working_.insert(rank);
  if (resume) store_.Restore(ReadServerFile(path_));
}

bool ParameterServing::Poll() {
  bool any = false;
  while (const std::optional<Message> message = transport_->Poll()) {
    any = true;
    Take(*message);
  }
  return any;
}

void ParameterServing::Run() {
  TakeMessagesUntil(
      transport_, [this](const Message& message) { Take(message); }, [this] { return done(); });
}

void ParameterServing::Take(const Message& message) {
  if (message.from < model_->servers()) {
    spdlog::warn("parameter server {}: server {} has sent a message of kind {}, which is dropped",
                 transport_->rank(), message.from, message.kind);
    return;
  }
  try {
    Handle(message);
  } catch (const Error& error) {
    Refuse(message.from, NumberOfRequest(message), error.what());
  }
  StepIfReady();
}

// Changes nothing if it throws Error.
void ParameterServing::Handle(const Message& message) {
  Require(working_.contains(message.from),
          "parameter server: worker {} has left and asks for something",
          message.from - model_->servers());
  switch (message.kind) {
    case kPullVariables:
      AnswerVariables(message.from, Read<VariableRequest>(message));
      break;
    case kPullVectors:
      AnswerVectors(message.from, Read<VectorRequest>(message));
      break;
    case kPushGradients:
      TakePush(message.from, Read<PushRequest>(message));
      break;
    case kSaveServer:
      Save(message.from, Read<ServerRequest>(message));
      break;
    case kLeaveServer:
      RemoveWorker(message.from);
      break;
    case kWorkerLost:
      lost_.push_back(FromWire<std::string>(message.bytes));
      RemoveWorker(message.from);
      break;
    default:
      Fail("parameter server: there are no requests of kind {}", message.kind);
  }
}

template <class Request>
Request ParameterServing::Read(const Message& message) const {
  Request request = FromWire<Request>(message.bytes);
  if constexpr (std::is_same_v<Request, ServerRequest>) {
    CheckRequest(request);
  } else {
    CheckRequest(request.request);
  }
  return request;
}

void ParameterServing::CheckRequest(const ServerRequest& request) const {
  Require(request.digest == model_->digest(),
          "parameter server: the request was made with other options than the server's ({:016x}, "
          "{:016x}); all ranks want the same",
          request.digest, model_->digest());
}

void ParameterServing::AnswerVariables(int worker, const VariableRequest& request) {
  CheckWhich(request.which);
  ServerAnswer answer{.number = request.request.number, .version = store_.version()};
  std::set<std::string> asked;
  for (const std::string& name : request.names) {
    model_->Variable(name);
    model_->CheckIsOn(transport_->rank(), name);
    Require(asked.insert(name).second, "parameter server: variable '{}' is asked for twice", name);
    const Array array = store_.Variable(name, request.which);
    const auto numbers = array.As<float>();
    answer.variables.push_back(
        {.name = name, .shape = array.shape(), .numbers = {numbers.begin(), numbers.end()}});
  }
  Send(worker, answer);
}

void ParameterServing::AnswerVectors(int worker, const VectorRequest& request) {
  CheckWhich(request.which);
  const EmbeddingLayer& layer = model_->Layer(request.layer);
  model_->CheckIds(layer, request.ids);
  model_->CheckIdsAreOn(transport_->rank(), layer, request.ids);
  Send(worker, {.number = request.request.number,
                .version = store_.version(),
                .vectors = store_.Vectors(request.layer, request.ids, request.which)});
}

ParameterGradients ParameterServing::CheckedGradients(PushRequest request) const {
  ParameterGradients gradients{.loss = request.loss};
  for (const VariableNumbers& variable : request.dense) {
    const Shape& shape = model_->Variable(variable.name).shape;
    model_->CheckIsOn(transport_->rank(), variable.name);
    Require(variable.shape == shape && std::ssize(variable.numbers) == NumElements(shape),
            "parameter server: gradient of variable '{}': wanted {}, got {} with {} numbers",
            variable.name, ToString(shape), ToString(variable.shape), variable.numbers.size());
    Require(!gradients.dense.Contains(variable.name),
            "parameter server: variable '{}' has two gradients", variable.name);
    gradients.dense.Set(variable.name, Array::Of<float>(shape, variable.numbers));
  }
  for (VectorNumbers& sparse : request.sparse) {
    gradients.sparse.push_back({.layer = std::move(sparse.layer),
                                .ids = std::move(sparse.ids),
                                .rows = std::move(sparse.rows)});
  }
  model_->CheckGradients(gradients);
  for (const SparseGradient& sparse : gradients.sparse) {
    model_->CheckIdsAreOn(transport_->rank(), model_->Layer(sparse.layer), sparse.ids);
  }
  store_.CheckStep(gradients);
  return gradients;
}

void ParameterServing::TakePush(int worker, PushRequest request) {
  const int64_t number = request.request.number;
  const int64_t version = request.version;
  ParameterGradients gradients = CheckedGradients(std::move(request));
  Require(version >= 0 && version <= store_.version(),
          "parameter server: the gradients are of version {}, wanted one in [0, {}]", version,
          store_.version());
  Require(!waiting_.contains(worker),
          "parameter server: worker {} has sent gradients that wait for those of others already",
          worker - model_->servers());
  const std::optional<int64_t>& staleness = model_->options().staleness;
  if (staleness && store_.version() - version > *staleness) {
    Send(worker, {.number = number, .version = store_.version(), .stale = true});
    return;
  }
  const std::string too_few = TooFew();
  Require(too_few.empty(), "{}", too_few);
  waiting_[worker] = {.number = number, .gradients = std::move(gradients)};
}

void ParameterServing::StepIfReady() {
  if (std::ssize(waiting_) < model_->options().grads_to_wait) return;
  std::vector<const ParameterGradients*> gradients;
  for (const auto& [worker, waiting] : waiting_) gradients.push_back(&waiting.gradients);
  store_.Step(gradients);
  for (const auto& [worker, waiting] : std::exchange(waiting_, {})) {
    Send(worker, {.number = waiting.number, .version = store_.version()});
  }
}

std::string ParameterServing::TooFew() const {
  const int64_t wanted = model_->options().grads_to_wait;
  if (std::ssize(working_) >= wanted) return "";
  return fmt::format(
      "parameter server: a step waits for {} gradients, but of {} workers {} are left{}{}", wanted,
      transport_->size() - model_->servers(), working_.size(), lost_.empty() ? "" : "; ",
      fmt::join(lost_, "; "));
}

void ParameterServing::RemoveWorker(int worker) {
  working_.erase(worker);
  waiting_.erase(worker);
  RefuseIfTooFew();
}

void ParameterServing::RefuseIfTooFew() {
  const std::string too_few = TooFew();
  if (too_few.empty()) return;
  for (const auto& [worker, waiting] : std::exchange(waiting_, {})) {
    Refuse(worker, waiting.number, too_few);
  }
}

void ParameterServing::Save(int worker, const ServerRequest& request) {
  Require(!path_.empty(), "parameter server: the job has no directory to save to");
  WriteArrayFile(path_, {.arrays = store_.Save(), .metadata = {{kFormatKey, kServerFormat}}});
  Send(worker, {.number = request.number, .version = store_.version()});
}

void ParameterServing::Send(int worker, const ServerAnswer& answer) {
  transport_->Send(worker, kServerAnswer, ToWire(answer));
}

void ParameterServing::Refuse(int worker, int64_t number, const std::string& why) {
  spdlog::warn("parameter server {}: refuses a request of worker {}: {}", transport_->rank(),
               worker - model_->servers(), why);
  Send(worker, {.number = number, .error = why, .version = store_.version()});
}

void ServeParameters(const ParameterServerOptions& options, Transport* transport,
                     const std::string& path, bool resume) {
  std::vector<std::string> lost;
  try {
    ParameterServing serving(options, transport, path, resume);
    serving.Run();
    lost = serving.lost();
  } catch (const std::exception& error) {
    for (int rank = static_cast<int>(options.servers); rank < transport->size(); ++rank) {
      transport->Send(rank, kServerFailed, ToWire(std::string(error.what())));
    }
    throw;
  }
  Require(lost.empty(), "parameter server {}: {}", transport->rank(), fmt::join(lost, "; "));
}

}  // namespace lopt
