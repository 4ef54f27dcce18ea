#include "lopt/learner/elastic/elastic_transport.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include "lopt/base/environment.h"
#include "lopt/base/error.h"
#include "lopt/base/parallel.h"
#include "lopt/base/print.h"
#include "lopt/base/utf8.h"
#include "lopt/learner/elastic/frame_parts.h"
#include "lopt/learner/elastic/network.h"
#include "lopt/learner/job/hello.h"

namespace lopt {
namespace {

constexpr double kTendLeasesSeconds = 0.02;
constexpr double kElasticFarewellSeconds = 5;
// So long a learner that has finished is there for workers that have lost it and look for it, or
// that begin just then; and so long for them to say who they are.
constexpr double kLateSeconds = 0.5;
constexpr double kLateStrangerSeconds = 1.5;
// A process that gets on, as it says, and does not answer for so many times
// progress_timeout_seconds, is taken for one that never will.
constexpr double kLongestAnswer = 10;
// Where progress_timeout_seconds is 0, for a job that is to stop; there a process that does not get
// on has the shorter time at most.
constexpr double kStopProgressSeconds = 60;
constexpr double kStopAnswerSeconds = 600;

}  // namespace

ElasticTransport::ElasticTransport(const MetaTrainConfig& config, const MetaTrainerOptions& options,
                                   ElasticOptions elastic, std::unique_ptr<Connections> connections)
    : config_(config),
      version_(options.version),
      allow_isa_change_(options.allow_isa_change),
      elastic_(std::move(elastic)),
      connections_(std::move(connections)),
      leases_(config.workers, config.windows_per_update, elastic_, connections_.get(), &peers_),
      tended_(elastic_.now()),
      pulsed_(tended_),
      log_(tended_) {
  Require(config.gather_checkpoints, "elastic workers send their states: set gather_checkpoints");
}

void ElasticTransport::Know(const Experiment& experiment) { leases_.Know(RulesOf(experiment)); }

void ElasticTransport::Send(int to, int kind, std::vector<std::byte> bytes) {
  Require(to >= 0 && to < size(), "there is no rank {} among {}", to, size());
  if (to == 0) {
    if (kind == kHello) {
      hello_ = bytes;
    }
    inbox_.push_back({.from = 0, .kind = kind, .bytes = std::move(bytes)});
    if (kind == kHello && elastic_.wait_for == 0 && !begun_) {
      Begin();
    }
    return;
  }
  if (kind == kHeartbeat) {  // whoever works for the rank is watched here
    inbox_.push_back({.from = to, .kind = kHeartbeat, .bytes = std::move(bytes)});
    return;
  }
  if (kind == kEnd) {
    End(bytes);
    return;
  }
  if (!sent_ || *sent_ != bytes) {
    sent_ = MakeBody(std::move(bytes));
  }
  leases_.Tell(to, kind, sent_);
}

void ElasticTransport::End(const std::vector<std::byte>& how) {
  if (end_) {
    return;
  }
  end_ = MakeBody(how);
  for (const auto& [connection, peer] : peers_) {
    if (peer.joined) {
      TellEnd(connection);
    }
  }
  if (const LeaseCounts& counts = leases_.counts(); counts.handed_out > 0) {
    spdlog::info("leases: {} updates of single workers, {} of them once more ({:.1f} %)",
                 counts.handed_out, counts.again,
                 100.0 * static_cast<double>(counts.again) /
                     static_cast<double>(counts.handed_out + counts.again));
  }
}

// The worker closes when it has heard that: if the learner did, its end of the connection could
// take the words with it that are still on their way.
void ElasticTransport::TellEnd(int64_t connection) {
  connections_->Send(connection, {.type = FrameType::kEnd, .body = end_});
}

void ElasticTransport::CloseStrangers() {
  std::erase_if(peers_, [&](const auto& entry) {
    if (!entry.second.joined) {
      connections_->Close(entry.first);
    }
    return !entry.second.joined;
  });
}

std::optional<Message> ElasticTransport::Poll() {
  Tend();
  while (inbox_.empty()) {
    std::optional<Connections::Event> event = connections_->Poll();
    if (!event) {
      return std::nullopt;
    }
    Handle(*event);
  }
  Message message = std::move(inbox_.front());
  inbox_.pop_front();
  return message;
}

void ElasticTransport::BeginFarewell() { farewell_ = elastic_.now(); }

bool ElasticTransport::FarewellDone() {
  if (std::optional<Connections::Event> event = connections_->Poll()) {
    Handle(*event);
  }
  const double seconds = SecondsBetween(farewell_, elastic_.now());
  const bool finished = end_ && FromWire<std::string>(*end_) == "finished";
  if (finished && seconds < kLateSeconds) {
    return false;
  }
  if (!finished || seconds > kLateStrangerSeconds) {
    CloseStrangers();
  }
  return connections_->Idle() || seconds > kElasticFarewellSeconds;
}

bool ElasticTransport::NotifyOnArrival(Wakeup* wakeup) {
  connections_->NotifyOnEvent(wakeup);
  return true;
}

// No frame that came later has been looked at, so whoever holds the rank has sent the answer; if it
// has left meanwhile, its heir begins with the states before.
bool ElasticTransport::RefuseAnswer(int from, const std::string& why) {
  if (from == 0) {
    return false;
  }
  if (const int64_t holder = leases_.Reopen(from); holder != 0) {
    Refuse(holder, why);
  }
  return true;
}

void ElasticTransport::DoAbort(int /*exit_code*/) { std::fflush(nullptr); }

int64_t ElasticTransport::workers() const {
  return std::ranges::count_if(peers_, [](const auto& peer) { return peer.second.equipped; });
}

void ElasticTransport::Handle(const Connections::Event& event) {
  using What = Connections::Event::What;
  if (event.what == What::kOpened) {
    Open(event.connection, event.peer);
    return;
  }
  const auto peer = peers_.find(event.connection);
  if (peer == peers_.end()) {
    return;
  }
  if (event.what == What::kClosed) {
    end_ ? void(peers_.erase(peer)) : Forget(event.connection, event.text);
    return;
  }
  if (end_ && peer->second.joined) {
    return;  // nothing that it says matters any more
  }
  peer->second.heard = elastic_.now();
  try {
    Take(event.connection, &peer->second, event.frame);
  } catch (const std::exception& error) {
    Refuse(event.connection, error.what());
  }
}

void ElasticTransport::Open(int64_t connection, const std::string& where) {
  const TimePoint now = elastic_.now();
  peers_[connection] = {.where = where, .name = "the process at " + where, .heard = now};
  const auto is_stranger = [](const auto& peer) { return !peer.second.joined; };
  if (std::ranges::count_if(peers_, is_stranger) > kStrangers) {
    Drop(std::ranges::find_if(peers_, is_stranger)->first,
         "too many others have not said who they are");
  }
}

void ElasticTransport::Take(int64_t connection, Peer* peer, const Frame& frame) {
  Require(
      peer->joined == (frame.type != FrameType::kJoin) &&
          (peer->equipped || frame.type == FrameType::kJoin || frame.type == FrameType::kEquipped ||
           frame.type == FrameType::kPulse || frame.type == FrameType::kFailed),
      "a frame of type {} comes out of turn", static_cast<int>(frame.type));
  switch (frame.type) {
    case FrameType::kJoin:
      Join(connection, peer, frame);
      break;
    case FrameType::kEquipped:
      Equip(connection, peer, frame);
      break;
    case FrameType::kAnswer:
      if (std::optional<Message> message = leases_.Take(connection, frame)) {
        inbox_.push_back(std::move(*message));
      }
      break;
    case FrameType::kPulse:
      TakePulse(peer, frame);
      break;
    case FrameType::kAskStop:
      Require(elastic_.workers_stop, "a worker does not stop this job");
      stopping_ = true;
      inbox_.push_back({.from = 1, .kind = kStop});
      break;
    case FrameType::kFailed:
      Log(*peer, Tone::kWarning,
          fmt::format("{} has failed: {}", peer->name, FromWire<std::string>(BytesOf(frame))));
      connections_->Close(connection);
      Forget(connection, "");
      break;
    default:
      Fail("a frame of type {} is not for the learner", static_cast<int>(frame.type));
  }
}

void ElasticTransport::TakePulse(Peer* peer, const Frame& frame) const {
  if (BytesOf(frame).empty()) {
    return;
  }
  const auto progress = FromWire<int64_t>(BytesOf(frame));
  if (std::exchange(peer->progress, progress) != progress) {
    peer->progressed = elastic_.now();
  }
}

void ElasticTransport::Join(int64_t connection, Peer* peer, const Frame& frame) {
  int64_t protocol = 0;
  WireReader(BytesOf(frame)).Read(protocol);
  Require(protocol == kElasticProtocol, "it speaks protocol {}, the learner protocol {}", protocol,
          kElasticProtocol);
  const auto request = FromWire<JoinRequest>(BytesOf(frame));
  CheckToken(request.token, elastic_.token);
  if (request.version != version_) {
    const std::string versions =
        fmt::format(": '{}' there, '{}' here", PeerName(request.version), version_);
    const bool stranger = elastic_.token.empty();
    Refuse(connection,
           "it runs another version of the program than the learner" + (stranger ? "" : versions),
           stranger ? versions : "");
    return;
  }
  peer->joined = true;
  if (end_) {
    TellEnd(connection);
    return;
  }
  Welcome welcome{.config = FromWire<Hello>(hello_).config,
                  .timeout_seconds = config_.worker_timeout_seconds};
  // It says who it is and repeats the config, before it is asked for answers.
  peer->Allow(kPartBytes + welcome.config.size(), connection, connections_.get());
  connections_->Send(connection, {.type = FrameType::kWelcome, .body = MakeBody(ToWire(welcome))});
}

void ElasticTransport::Equip(int64_t connection, Peer* peer, const Frame& frame) {
  const auto equipment = FromWire<Equipment>(BytesOf(frame));
  const Hello& hello = equipment.hello;
  Require(!peer->equipped, "it says a second time who it is");
  Require(equipment.threads >= 1 && equipment.threads <= kMaxThreads,
          "it says that it has {} threads; there may be 1 to {}", equipment.threads, kMaxThreads);
  Require(!hello.device.empty() && hello.device == PlainText(hello.device),
          "it says that its windows run on the device '{}'; wanted is the model of one",
          PlainText(hello.device));
  const std::string host = PeerName(hello.host);
  auto learner = FromWire<Hello>(hello_);
  CompareHellos(learner, fmt::format("process {} on {}", hello.pid, host), hello,
                allow_isa_change_);
  if (stopping_) {
    connections_->Send(connection, {.type = FrameType::kEnd,
                                    .body = MakeBody(ToWire(std::string("interrupted")))});
    connections_->Close(connection);
    Forget(connection, "");
    return;
  }
  peer->equipped = true;
  peer->threads = equipment.threads;
  peer->name = fmt::format("worker process {} ({}, {} threads, at {})", hello.pid, host,
                           equipment.threads, peer->where);
  Log(*peer, Tone::kInfo, fmt::format("{} has joined; {} are there", peer->name, workers()));
  waiting_ = false;
  if (learner.device.empty()) {  // the first: what it has, the run has
    learner.device = hello.device;
    Send(0, kHello, ToWire(learner));
  }
  if (!begun_ && workers() >= elastic_.wait_for) {
    Begin();
  }
  if (begun_) leases_.ShareOut();
}

// All ranks say who they are: what the learner is, to which whoever works for them is compared. The
// learner has no device of its own but that of the first of them.
void ElasticTransport::Begin() {
  begun_ = true;
  for (int rank = 1; rank < size(); ++rank) {
    inbox_.push_back({.from = rank, .kind = kHello, .bytes = hello_});
  }
}

void ElasticTransport::Log(const Peer& peer, Tone tone, const std::string& line) {
  log_.Write(!peer.joined, tone, line);
}

void ElasticTransport::Refuse(int64_t connection, const std::string& why,
                              const std::string& for_log) {
  const Peer& peer = peers_.at(connection);
  Log(peer, Tone::kWarning, fmt::format("{} is refused: {}{}", peer.name, why, for_log));
  connections_->Send(connection,
                     {.type = FrameType::kRefused, .body = MakeBody(ToWire(PeerLine(why)))});
  connections_->Close(connection);
  Forget(connection, "");
}

void ElasticTransport::Drop(int64_t connection, const std::string& why) {
  const Peer& peer = peers_.at(connection);
  Log(peer, Tone::kWarning, fmt::format("{} is dropped: {}", peer.name, why));
  connections_->Close(connection);
  Forget(connection, "");
}

void ElasticTransport::Forget(int64_t connection, const std::string& why) {
  const Peer peer = std::move(peers_.extract(connection).mapped());
  const int64_t leased = leases_.End(connection);
  if (peer.equipped) {
    Log(peer, Tone::kInfo,
        fmt::format("{} has gone{}{}; {} of {} workers were leased to it, {} processes are left",
                    peer.name, why.empty() ? "" : ": ", why, leased, leases_.ranks(), workers()));
    if (begun_) leases_.ShareOut();
  } else if (!why.empty()) {
    Log(peer, Tone::kWarning, fmt::format("{} has gone: {}", peer.name, why));
  }
}

void ElasticTransport::Tend() {
  const TimePoint now = elastic_.now();
  const double away = SecondsBetween(tended_, now);
  if (away < kTendLeasesSeconds || end_) {
    return;
  }
  tended_ = now;
  log_.Tend(now);
  const double timeout = config_.worker_timeout_seconds;
  if (timeout > 0 && SecondsBetween(pulsed_, now) >= PulseSeconds(timeout)) {
    pulsed_ = now;
    for (const auto& [connection, peer] : peers_) {
      if (peer.joined) {
        connections_->Send(connection, {.type = FrameType::kPulse});
      }
    }
  }
  NoteArrived(now);
  for (const auto& [connection, why] : FindSilent(now, away)) {
    Drop(connection, why);
  }
  CheckStop();
  for (const auto& [connection, why] : FindOverdue(now, away)) {
    Drop(connection, why);
  }
  CheckWaiting(now, away);
}

void ElasticTransport::NoteArrived(TimePoint now) {
  for (auto& [connection, peer] : peers_) {
    const int64_t arrived = peer.joined ? connections_->Arrived(connection) : 0;
    if (std::exchange(peer.arrived, arrived) != arrived) {
      peer.heard = peer.progressed = now;
    }
  }
}

std::vector<std::pair<int64_t, std::string>> ElasticTransport::FindSilent(TimePoint now,
                                                                          double away) {
  const double timeout = config_.worker_timeout_seconds;
  std::vector<std::pair<int64_t, std::string>> silent;
  for (auto& [connection, peer] : peers_) {
    // A learner that was busy or stopped itself has not listened.
    if (timeout > 0 && away > timeout / 4) {
      peer.heard = now;
    }
    const double quiet = SecondsBetween(peer.heard, now);
    if (!peer.joined ? quiet > kStrangerSeconds : timeout > 0 && quiet > timeout) {
      silent.emplace_back(connection, fmt::format("it has been silent for {:.1f} s", quiet));
    }
  }
  return silent;
}

// The workers of a process wait in one queue, so what it owes is counted from its last answer; but
// one that answers for some workers and never for another does not keep that for ever.
std::vector<std::pair<int64_t, std::string>> ElasticTransport::FindOverdue(TimePoint now,
                                                                           double away) {
  double stuck = config_.progress_timeout_seconds;
  double longest = kLongestAnswer * stuck;
  if (stopping_) {
    stuck = stuck > 0 ? std::min(stuck, kStopProgressSeconds) : kStopProgressSeconds;
    longest = longest > 0 ? longest : kStopAnswerSeconds;
  }
  std::vector<std::pair<int64_t, std::string>> overdue;
  if (stuck <= 0) {
    return overdue;
  }
  for (const auto& [connection, debt] : leases_.Debts()) {
    Peer& peer = peers_.at(connection);
    if (away > stuck / 4) {  // as in FindSilent
      peer.answered = peer.progressed = now;
    }
    if (debt.answers == 0) {
      continue;
    }
    const double open = SecondsBetween(debt.since, now);
    const double mute = SecondsBetween(std::max(debt.since, peer.answered), now);
    const double still = std::min(mute, SecondsBetween(peer.progressed, now));
    if (still > stuck || mute > longest || open > longest * static_cast<double>(debt.leases)) {
      overdue.emplace_back(
          connection,
          fmt::format("it owes the answer of worker {} for {:.1f} s, has given none for {:.1f} s, "
                      "and has not got on for {:.1f} s (progress_timeout_seconds is {})",
                      debt.worker, open, mute, still, config_.progress_timeout_seconds));
    }
  }
  return overdue;
}

void ElasticTransport::CheckStop() {
  if (elastic_.stop != nullptr && *elastic_.stop) {
    stopping_ = true;
  }
  if (!stopping_ || std::exchange(said_stop_, true)) {
    return;
  }
  for (const auto& [connection, debt] : leases_.Debts()) {
    if (debt.answers > 0) {
      spdlog::info("stopping waits for {} answers of {}", debt.answers, peers_.at(connection).name);
    }
  }
}

void ElasticTransport::CheckWaiting(TimePoint now, double away) {
  if (hello_.empty() || (begun_ && workers() > 0)) {
    return;
  }
  if (begun_ && !leases_.Owed()) {
    return;
  }
  const std::string there = begun_ ? "none" : fmt::format("{} of {}", workers(), elastic_.wait_for);
  const bool first = !std::exchange(waiting_, true);
  if (first) {
    spdlog::info("waiting for workers on {}: {} are there", connections_->Description(), there);
  }
  const double longest = elastic_.wait_seconds;
  if (first || away > longest / 4) {  // as in FindSilent
    waiting_since_ = now;
  }
  if (stopping_) {
    throw StoppedAlone(
        "stopped while no worker is there to finish the update; what came after the last "
        "checkpoint is lost");
  }
  Require(longest == 0 || SecondsBetween(waiting_since_, now) < longest,
          "waited {:.0f} s for workers on {}: {} are there; the log names those that were refused "
          "or have failed",
          longest, connections_->Description(), there);
}

}  // namespace lopt
