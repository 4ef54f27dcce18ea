#include "lopt/learner/parameter_server/parameter_server_transport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>

#include "lopt/base/error.h"
#include "lopt/learner/elastic/frame_parts.h"
#include "lopt/learner/elastic/network.h"
#include "lopt/learner/job/wire.h"
#include "lopt/learner/parameter_server/parameter_join.h"
#include "lopt/learner/parameter_server/parameter_messages.h"

namespace lopt {
namespace {

constexpr double kTendPeersSeconds = 0.02;
constexpr double kServerFarewellSeconds = 5;

void CheckJoin(const ParameterJoin& join, const ParameterJoin& wanted) {
  Require(join.servers == wanted.servers && join.workers == wanted.workers,
          "it belongs to a job of {} servers and {} workers, this is one of {} and {}",
          join.servers, join.workers, wanted.servers, wanted.workers);
  Require(join.server == wanted.server, "it looks for server {}, this is server {}", join.server,
          wanted.server);
  Require(join.worker >= 0 && join.worker < wanted.workers,
          "it says that it is worker {}; there are 0 to {}", join.worker, wanted.workers - 1);
  Require(join.digest == wanted.digest,
          "it was made with other options than the server ({:016x}, {:016x}); all processes want "
          "the same",
          join.digest, wanted.digest);
}

}  // namespace

void CheckServerNumber(int64_t server, int64_t servers) {
  Require(server >= 0 && server < servers,
          "parameter server: there is no server {}; there are 0 to {}", server, servers - 1);
}

ParameterServerTransport::ParameterServerTransport(const ParameterServerOptions& model, int server,
                                                   ParameterLinkOptions options,
                                                   std::unique_ptr<Connections> connections)
    : ParameterTransport(model, std::move(options)),
      server_(server),
      connections_(std::move(connections)),
      tended_(begun_),
      log_(begun_) {
  CheckServerNumber(server, model_.servers());
}

void ParameterServerTransport::Send(int to, int kind, std::vector<std::byte> bytes) {
  Require(to >= model_.servers() && to < size(), "parameter server: rank {} is no worker", to);
  Frame frame{.type = FrameType::kTell, .kind = kind, .body = MakeBody(std::move(bytes))};
  if (const auto connection = connected_.find(to); connection != connected_.end()) {
    connections_.Send(connection->second, std::move(frame));
  } else if (!come_.contains(to)) {
    waiting_[to].push_back(std::move(frame));
  }
}

std::optional<Message> ParameterServerTransport::Poll() {
  if (!farewell_) Tend();
  while (inbox_.empty() || farewell_) {
    const std::optional<Connections::Event> event = connections_.Poll();
    if (!event) return std::nullopt;
    Handle(*event);
  }
  Message message = std::move(inbox_.front());
  inbox_.pop_front();
  return message;
}

void ParameterServerTransport::BeginFarewell() {
  farewell_ = options_.now();
  for (const auto& [connection, peer] : peers_) {
    if (!peer.rank && AllHaveCome()) connections_.Close(connection);
  }
}

bool ParameterServerTransport::FarewellDone() {
  if (!farewell_) return false;
  Poll();
  const double seconds = SecondsSince(*farewell_);
  if (seconds > kServerFarewellSeconds) {
    for (const auto& [connection, peer] : std::exchange(peers_, {})) connections_.Close(connection);
    return connections_.Idle() || seconds > 2 * kServerFarewellSeconds;
  }
  return AllHaveCome() && connections_.Idle();
}

bool ParameterServerTransport::NotifyOnArrival(Wakeup* wakeup) {
  connections_.NotifyOnEvent(wakeup);
  return true;
}

void ParameterServerTransport::Handle(const Connections::Event& event) {
  using What = Connections::Event::What;
  if (event.what == What::kOpened) {
    Open(event.connection, event.peer);
    return;
  }
  const auto peer = peers_.find(event.connection);
  if (peer == peers_.end()) return;
  if (event.what == What::kClosed) {
    Lose(event.connection, event.text);
    return;
  }
  peer->second.heard = options_.now();
  try {
    Take(event.connection, &peer->second, event.frame);
  } catch (const std::exception& error) {
    Refuse(event.connection, error.what());
  }
}

void ParameterServerTransport::Open(int64_t connection, const std::string& where) {
  peers_[connection] = {.name = "the process at " + where, .heard = options_.now()};
  const auto is_stranger = [](const auto& peer) { return !peer.second.rank; };
  if (std::ranges::count_if(peers_, is_stranger) > kStrangers) {
    Refuse(std::ranges::find_if(peers_, is_stranger)->first,
           "too many others have not said who they are");
  }
}

void ParameterServerTransport::Take(int64_t connection, Peer* peer, const Frame& frame) {
  if (!peer->rank) {
    Require(frame.type == FrameType::kJoin, "a frame of type {} comes before it has joined",
            static_cast<int>(frame.type));
    Join(connection, peer, frame);
    return;
  }
  if (frame.type == FrameType::kPulse) return;
  Require(frame.type == FrameType::kAnswer, "a frame of type {} is not for a parameter server",
          static_cast<int>(frame.type));
  Require(frame.kind >= kPullVariables && frame.kind <= kLeaveServer,
          "no worker sends a message of kind {}", frame.kind);
  if (frame.kind == kLeaveServer) left_.insert(*peer->rank);
  inbox_.push_back({.from = *peer->rank, .kind = frame.kind, .bytes = BytesOf(frame)});
}

void ParameterServerTransport::Join(int64_t connection, Peer* peer, const Frame& frame) {
  int64_t protocol = 0;
  WireReader(BytesOf(frame)).Read(protocol);
  Require(protocol == kParameterProtocol, "it speaks protocol {}, a parameter server protocol {}",
          protocol, kParameterProtocol);
  const auto join = FromWire<ParameterJoin>(BytesOf(frame));
  CheckToken(join.token, options_.token);
  CheckJoin(join, {.workers = options_.workers,
                   .server = server_,
                   .servers = model_.servers(),
                   .digest = model_.digest()});
  const int rank = model_.servers() + static_cast<int>(join.worker);
  const auto there = connected_.find(rank);
  Require(there == connected_.end(), "worker {} is there already: {}", join.worker,
          there == connected_.end() ? "" : peers_.at(there->second).name);
  Require(come_.insert(rank).second, "worker {} was there and has gone; it cannot come back",
          join.worker);
  peer->rank = rank;
  peer->name = fmt::format("worker {}, {},", join.worker, peer->name);
  connected_[rank] = connection;
  connections_.Trust(connection, model_.MostMessageBytes(server_));
  connections_.Send(
      connection, {.type = FrameType::kWelcome,
                   .body = MakeBody(ToWire(Welcome{.timeout_seconds = options_.timeout_seconds}))});
  if (options_.timeout_seconds > 0) {
    connections_.Pulse(connection, PulseSeconds(options_.timeout_seconds));
  }
  if (const auto waiting = waiting_.find(rank); waiting != waiting_.end()) {
    for (Frame& frame : waiting->second) connections_.Send(connection, std::move(frame));
    waiting_.erase(waiting);
  }
  log_.Write(false, PeerLog::Tone::kInfo,
             fmt::format("parameter server {}: {} has joined; {} of {} have come", server_,
                         peer->name, come_.size(), options_.workers));
}

void ParameterServerTransport::Refuse(int64_t connection, const std::string& why) {
  connections_.Send(connection,
                    {.type = FrameType::kRefused, .body = MakeBody(ToWire(PeerLine(why)))});
  Lose(connection, "it is refused: " + why);
  connections_.Close(connection);
}

void ParameterServerTransport::Lose(int64_t connection, const std::string& why) {
  const Peer peer = std::move(peers_.extract(connection).mapped());
  const std::string gone = PeerLine(peer.name + " has gone" + (why.empty() ? "" : ": " + why));
  if (peer.rank) {
    connected_.erase(*peer.rank);
    if (left_.contains(*peer.rank)) return;
    inbox_.push_back({.from = *peer.rank, .kind = kWorkerLost, .bytes = ToWire(gone)});
  }
  if (peer.rank || !why.empty()) {
    log_.Write(!peer.rank, PeerLog::Tone::kWarning,
               fmt::format("parameter server {}: {}", server_, gone));
  }
}

void ParameterServerTransport::Tend() {
  const TimePoint now = options_.now();
  const double away = SecondsBetween(tended_, now);
  if (away < kTendPeersSeconds) return;
  tended_ = now;
  log_.Tend(now);
  CheckWaiting();
  const double timeout = options_.timeout_seconds;
  std::vector<std::pair<int64_t, double>> silent;
  for (auto& [connection, peer] : peers_) {
    const int64_t arrived = peer.rank ? connections_.Arrived(connection) : 0;
    // A server that was busy has not listened.
    if (std::exchange(peer.arrived, arrived) != arrived || (timeout > 0 && away > timeout / 4)) {
      peer.heard = now;
    }
    const double quiet = SecondsBetween(peer.heard, now);
    if (peer.rank ? timeout > 0 && quiet > timeout : quiet > kStrangerSeconds) {
      silent.emplace_back(connection, quiet);
    }
  }
  for (const auto& [connection, quiet] : silent) {
    Refuse(connection, fmt::format("it has been silent for {:.1f} s", quiet));
  }
}

void ParameterServerTransport::CheckWaiting() const {
  if (AllHaveCome() || SecondsSince(begun_) < options_.wait_seconds) return;
  std::vector<int64_t> missing;
  for (int64_t worker = 0; worker < options_.workers; ++worker) {
    if (!come_.contains(model_.servers() + static_cast<int>(worker))) missing.push_back(worker);
  }
  Fail("parameter server {}: waited {:.0f} s on {} for workers; of {} these have not come: {}",
       server_, options_.wait_seconds, connections_.Description(), options_.workers,
       fmt::join(missing, ", "));
}

}  // namespace lopt
