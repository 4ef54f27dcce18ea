#include "lopt/learner/job/message_loop.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "lopt/base/environment.h"
#include "lopt/learner/run/status_file.h"

namespace lopt {
namespace {

using std::chrono::microseconds;

constexpr double kStatusSeconds = 0.5;
constexpr double kTendSeconds = 0.02;

double Seconds(SteadyClock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

MessageLoop::MessageLoop(Transport* transport, Wakeup* wakeup, Options options)
    : transport_(transport),
      options_(std::move(options)),
      wait_(transport, wakeup),
      progress_(options_.progress.size()),
      tended_(Clock::now()),
      beaten_(tended_ - std::chrono::hours(1)),
      host_(Environment::Current().HostName()) {
  const int last = transport->rank() == 0 ? transport->size() - 1 : 0;
  for (int rank = transport->rank() == 0 ? 1 : 0; rank <= last; ++rank) {
    peers_.push_back({.rank = rank, .heard = tended_});
  }
}

MessageLoop::Peer* MessageLoop::FindPeer(int rank) {
  const size_t index = transport_->rank() == 0 ? static_cast<size_t>(rank) - 1 : 0;
  return rank == transport_->rank() || index >= peers_.size() ? nullptr : &peers_[index];
}

void MessageLoop::WriteStatusTo(std::string path) {
  status_path_ = std::move(path);
  WriteStatus();
}

void MessageLoop::WriteStatus() {
  if (status_path_.empty()) {
    return;
  }
  status_written_ = Clock::now();
  try {
    WriteStatusFile(status_path_, RankStatus{.rank = transport_->rank(),
                                             .host = host_,
                                             .pid = Environment::Current().ProcessId(),
                                             .updates = updates_,
                                             .state = std::string(options_.state()),
                                             .time_seconds = SecondsSince1970()});
  } catch (const Error& error) {
    // The next one may be written: a supervisor takes a rank that says nothing for a hung one.
    if (!std::exchange(status_failed_, true)) spdlog::warn("{}; it is tried again", error.what());
  }
}

bool MessageLoop::TakeMessages() {
  bool any = false;
  while (std::optional<Message> message = transport_->Poll()) {
    any = true;
    Peer* peer = FindPeer(message->from);
    if (peer != nullptr) {
      peer->heard = Clock::now();
    }
    if (message->kind == kHeartbeat) {
      if (peer != nullptr) {
        Heartbeat heartbeat = FromWire<Heartbeat>(message->bytes);
        peer->host = std::move(heartbeat.host);
        peer->updates = heartbeat.updates;
        updates_ = std::max(updates_, peer->updates);
      }
    } else {
      options_.on_message(std::move(*message));
    }
  }
  return any;
}

void MessageLoop::Tend(Clock::time_point now) {
  if (Seconds(now - tended_) < kTendSeconds) {
    return;
  }
  // A process that was stopped itself, or busy, has not listened: its peers get their time again.
  const auto was_away = [&](double timeout) {
    return timeout > 0 && Seconds(now - tended_) > timeout / 4;
  };
  if (was_away(options_.timeout_seconds)) {
    for (Peer& peer : peers_) {
      peer.heard = now;
    }
  }
  if (was_away(options_.timeout_seconds) || was_away(options_.progress_timeout_seconds)) {
    for (Progress& progress : progress_) {
      progress.changed = now;
    }
  }
  tended_ = now;
  if (options_.timeout_seconds > 0 &&
      Seconds(now - beaten_) >= std::clamp(options_.timeout_seconds / 8, 0.05, 1.0)) {
    beaten_ = now;
    for (const Peer& peer : peers_) {
      transport_->Send(peer.rank, kHeartbeat,
                       ToWire(Heartbeat{.host = host_, .updates = updates_}));
    }
  }
  CheckPeers(now);
  CheckProgress(now);
  if (Seconds(now - status_written_) >= kStatusSeconds) {
    WriteStatus();
  }
}

void MessageLoop::CheckPeers(Clock::time_point now) {
  if (options_.timeout_seconds <= 0) {
    return;
  }
  for (const Peer& peer : peers_) {
    // All ranks miss a silent learner at the same time; one line is enough, so they take turns.
    const double turn = std::min(0.1 * std::max(transport_->rank() - 1, 0), 2.0);
    const double silent = Seconds(now - peer.heard);
    if (silent > options_.timeout_seconds + turn) {
      Environment::Current().Say(fmt::format(
          "rank {} ({}) has been silent for {:.1f} s, longer than worker_timeout_seconds; the last "
          "step heard of it is {}; rank {} ({}) ends the job",
          peer.rank, peer.host.empty() ? "host unknown" : peer.host, silent, peer.updates,
          transport_->rank(), host_));
      transport_->Abort(kExitRankLost);
    }
  }
}

void MessageLoop::CheckProgress(Clock::time_point now) {
  for (size_t i = 0; i < progress_.size(); ++i) {
    Progress& progress = progress_[i];
    const std::optional<int64_t> present = options_.progress[i]();
    if (!present || present != progress.last) {
      progress = {.last = present, .changed = now};
    }
    const double seconds = Seconds(now - progress.changed);
    if (options_.progress_timeout_seconds > 0 && seconds > options_.progress_timeout_seconds) {
      Environment::Current().Say(
          fmt::format("rank {} ({}) has made no progress for {:.1f} s, longer than "
                      "progress_timeout_seconds, in state {}; its last step is {}; it ends the job",
                      transport_->rank(), host_, seconds, options_.state(), updates_));
      transport_->Abort(kExitRankLost);
    }
  }
}

void MessageLoop::RunUntil(const std::function<bool()>& done, microseconds longest) {
  wait_.Restart(Clock::now());
  while (!done()) {
    bool active = TakeMessages();
    active = options_.on_poll() || active;
    const Clock::time_point now = Clock::now();
    Tend(now);
    if (active) {
      wait_.Restart(now);
    } else {
      wait_.Wait(now, options_.urgent, longest);
    }
  }
}

}  // namespace lopt
