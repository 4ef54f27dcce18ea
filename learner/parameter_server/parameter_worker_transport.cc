#include "lopt/learner/parameter_server/parameter_worker_transport.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "lopt/base/error.h"
#include "lopt/base/utf8.h"
#include "lopt/learner/job/wire.h"
#include "lopt/learner/parameter_server/parameter_join.h"

namespace lopt {
namespace {

constexpr double kBetweenTriesSeconds = 0.2;
constexpr double kWorkerFarewellSeconds = 5;

}  // namespace

ParameterWorkerTransport::ParameterWorkerTransport(const ParameterServerOptions& model, int worker,
                                                   ParameterLinkOptions options,
                                                   const Servers& servers)
    : ParameterTransport(model, std::move(options)), worker_(worker), tended_(begun_) {
  Require(std::ssize(servers) == model_.servers(),
          "parameter server: wanted the addresses of {} servers, got {}", model_.servers(),
          servers.size());
  Require(worker >= 0 && worker < options_.workers,
          "parameter server: there is no worker {}; there are 0 to {}", worker,
          options_.workers - 1);
  for (const auto& [address, connect] : servers) {
    links_.push_back(
        {.name = fmt::format("server {} at {}", links_.size(), address), .connect = connect});
    Open(static_cast<int>(links_.size()) - 1);
  }
}

std::string ParameterWorkerTransport::Description() const {
  const auto& first = links_[0].connection;
  return fmt::format("{}, {} servers", first ? first->Description() : links_[0].name,
                     links_.size());
}

void ParameterWorkerTransport::Open(int server) {
  Link& link = links_[static_cast<size_t>(server)];
  link.tried = options_.now();
  link.connection = std::make_unique<PulsedConnections>(link.connect());
  link.connection->NotifyOnEvent(wakeup_);
  link.connection->Trust(1, model_.MostMessageBytes(server));
  const ParameterJoin join{.token = options_.token,
                           .worker = worker_,
                           .workers = options_.workers,
                           .server = server,
                           .servers = model_.servers(),
                           .digest = model_.digest()};
  link.connection->Send(1, {.type = FrameType::kJoin, .body = MakeBody(ToWire(join))});
}

void ParameterWorkerTransport::Send(int to, int kind, std::vector<std::byte> bytes) {
  Require(to >= 0 && to < model_.servers(), "parameter server: rank {} is no server", to);
  Link& link = links_[static_cast<size_t>(to)];
  Frame frame{.type = FrameType::kAnswer, .kind = kind, .body = MakeBody(std::move(bytes))};
  if (!link.timeout_seconds) {
    link.waiting.push_back(std::move(frame));
  } else if (link.connection) {
    link.connection->Send(1, std::move(frame));
  }
}

std::optional<Message> ParameterWorkerTransport::Poll() {
  if (farewell_) return std::nullopt;
  const TimePoint now = options_.now();
  const double away = SecondsBetween(std::exchange(tended_, now), now);
  for (Link& link : links_) {
    // A worker that was busy has not listened.
    if (away > link.timeout_seconds.value_or(0) / 4) link.heard = now;
  }
  for (size_t i = 0; i < links_.size(); ++i) {
    const auto server = static_cast<int>(next_);
    next_ = (next_ + 1) % links_.size();
    if (std::optional<Message> message = PollServer(server)) return message;
  }
  return std::nullopt;
}

std::optional<Message> ParameterWorkerTransport::PollServer(int server) {
  Link& link = links_[static_cast<size_t>(server)];
  if (link.lost) throw Error(*link.lost);
  try {
    while (link.connection) {
      const std::optional<Connections::Event> event = link.connection->Poll();
      if (!event) break;
      if (event->what == Connections::Event::What::kClosed) {
        link.why = event->text.empty() ? "the connection has ended"
                                       : PlainText(event->text, kMostPeerText);
        link.connection.reset();
        Require(!link.timeout_seconds, "{} has gone: {}", link.name, link.why);
      } else if (std::optional<Message> message = Take(server, event->frame)) {
        return message;
      }
    }
    Tend(server);
  } catch (const Error& error) {
    link.lost = fmt::format("parameter server: {}", error.what());
    link.connection.reset();
    throw Error(*link.lost);
  }
  return std::nullopt;
}

std::optional<Message> ParameterWorkerTransport::Take(int server, const Frame& frame) {
  Link& link = links_[static_cast<size_t>(server)];
  link.heard = options_.now();
  switch (frame.type) {
    case FrameType::kPulse:
      return std::nullopt;
    case FrameType::kWelcome: {
      Require(!link.timeout_seconds, "{} welcomes this worker twice", link.name);
      link.timeout_seconds = FromWire<Welcome>(BytesOf(frame)).timeout_seconds;
      if (*link.timeout_seconds > 0) {
        link.connection->Pulse(1, PulseSeconds(*link.timeout_seconds));
      }
      for (Frame& waiting : std::exchange(link.waiting, {})) {
        link.connection->Send(1, std::move(waiting));
      }
      return std::nullopt;
    }
    case FrameType::kTell:
      Require(link.timeout_seconds.has_value(), "{} answers before it has welcomed this worker",
              link.name);
      return Message{.from = server, .kind = frame.kind, .bytes = BytesOf(frame)};
    case FrameType::kRefused:
      Fail("{} refuses this worker: {}", link.name,
           PlainText(FromWire<std::string>(BytesOf(frame)), kMostPeerText));
    default:
      Fail("{} has sent a frame of type {}, which is not for a worker", link.name,
           static_cast<int>(frame.type));
  }
}

void ParameterWorkerTransport::Tend(int server) {
  Link& link = links_[static_cast<size_t>(server)];
  if (link.timeout_seconds) {
    const int64_t arrived = link.connection->Arrived(1);
    if (std::exchange(link.arrived, arrived) != arrived) link.heard = options_.now();
    const double quiet = SecondsSince(link.heard);
    Require(*link.timeout_seconds <= 0 || quiet <= *link.timeout_seconds,
            "{} has been silent for {:.1f} s", link.name, quiet);
    return;
  }
  Require(SecondsSince(begun_) < options_.wait_seconds, "waited {:.0f} s for {}: {}",
          options_.wait_seconds, link.name, link.why.empty() ? "it says nothing" : link.why);
  if (link.connection || SecondsSince(link.tried) < kBetweenTriesSeconds) return;
  if (std::exchange(link.said, link.why) != link.why) {
    spdlog::info("parameter server: no {}: {}; looking for it for {:.0f} s", link.name, link.why,
                 options_.wait_seconds);
  }
  Open(server);
}

void ParameterWorkerTransport::BeginFarewell() { farewell_ = options_.now(); }

// A server that has not welcomed this worker yet has to hear that it leaves.
bool ParameterWorkerTransport::FarewellDone() {
  if (!farewell_) return false;
  bool done = true;
  for (int server = 0; server < model_.servers(); ++server) {
    Link& link = links_[static_cast<size_t>(server)];
    if (link.lost) continue;
    if (!link.waiting.empty()) {
      try {
        PollServer(server);
      } catch (const Error& error) {
        spdlog::warn("{}", error.what());
      }
      farewell_ = options_.now();
      done = false;
    } else if (link.connection) {
      if (!std::exchange(link.closing, true)) link.connection->Close(1);
      done = done && link.connection->Idle();
    }
  }
  return done || SecondsSince(*farewell_) > kWorkerFarewellSeconds;
}

bool ParameterWorkerTransport::NotifyOnArrival(Wakeup* wakeup) {
  wakeup_ = wakeup;
  for (Link& link : links_) {
    if (link.connection) link.connection->NotifyOnEvent(wakeup);
  }
  return true;
}

}  // namespace lopt
