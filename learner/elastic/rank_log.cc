#include "lopt/learner/elastic/rank_log.h"

#include <algorithm>

#include "lopt/base/error.h"

namespace lopt {
namespace {

// The kind of the answer to a message; none: it has none.
std::optional<int> AnswerTo(int kind) {
  switch (kind) {
    case kBegin:
    case kGo:
      return kReady;
    case kWeights:
      return kGradients;
    case kSave:
      return kSaved;
    default:
      return std::nullopt;
  }
}

}  // namespace

void RankLog::Add(int kind, FrameBody body) {
  Require(rules_.has_value(), "RankLog: the rules of the answers are to be known first");
  Entry entry{.kind = kind, .body = std::move(body)};
  if (kind == kWeights) {
    // The first two members of WorkerWeights.
    WireReader in(*entry.body);
    in("outer_step", entry.outer_step);
    in("theta", entry.theta_size);
  } else if (kind == kState) {
    windows_ = rules_->ReadStates(FromWire<WorkersFile>(*entry.body).bytes);
  } else if (kind == kSave) {
    const auto request = FromWire<SaveRequest>(*entry.body);
    Require(request.what != SaveRequest::What::kWrite,
            "workers that are leased do not see the directory {}: they send their states "
            "(gather_checkpoints)",
            request.directory);
    entry.gives_states = request.what == SaveRequest::What::kSend;
  }
  Append(std::move(entry));
}

void RankLog::AddSnapshot() {
  Append({.kind = kSave,
          .body = MakeBody(ToWire(SaveRequest{.what = SaveRequest::What::kSend})),
          .settled = true,
          .gives_states = true});
}

void RankLog::Append(Entry entry) {
  entry.windows = windows_;
  if (entry.kind == kWeights) {
    windows_ += windows_per_update_;
    ++weights_;
  }
  log_.push_back(std::move(entry));
}

void RankLog::Restart() { told_ = answered_ = 0; }

std::optional<RankLog::Told> RankLog::Tell() {
  if (told_ == log_.size()) {
    return std::nullopt;
  }
  Entry& entry = log_[told_++];
  return Told{.kind = entry.kind, .body = entry.body, .again = std::exchange(entry.told, true)};
}

std::optional<size_t> RankLog::NextAwaited() const {
  for (size_t i = answered_; i < told_; ++i) {
    if (AnswerTo(log_[i].kind)) {
      return i;
    }
  }
  return std::nullopt;
}

bool RankLog::Owes() const {
  return std::ranges::any_of(
      log_, [](const Entry& entry) { return AnswerTo(entry.kind) && !entry.settled; });
}

bool RankLog::Take(int kind, const std::vector<std::byte>& bytes) {
  const std::optional<size_t> next = NextAwaited();
  Require(next.has_value(), "it answers what nobody has asked, kind {}", kind);
  Entry& asked = log_[*next];
  Require(AnswerTo(asked.kind) == kind, "it answers a message of kind {} with one of kind {}",
          asked.kind, kind);
  const bool wanted = !asked.settled;
  if (asked.gives_states) {
    TakeStates(*next, bytes);
    return wanted;
  }
  if (kind == kGradients) {
    rules_->CheckGradient(bytes, {.first_window = asked.windows,
                                  .windows = windows_per_update_,
                                  .outer_step = asked.outer_step,
                                  .theta_size = asked.theta_size});
  } else if (kind == kReady) {
    rules_->CheckReady(bytes);
  } else {
    rules_->CheckNothingSaved(bytes);
  }
  asked.settled = true;
  answered_ = *next + 1;
  return wanted;
}

void RankLog::Reopen() {
  for (auto entry = log_.rbegin(); entry != log_.rend(); ++entry) {
    if (entry->kind == kWeights && entry->settled) {
      entry->settled = false;
      return;
    }
  }
  Fail("there is no gradient of worker {} that could be asked for again", rules_->worker());
}

void RankLog::TakeStates(size_t asked, const std::vector<std::byte>& bytes) {
  const int64_t worker = rules_->worker();
  const int64_t windows = log_[asked].windows;
  std::vector<std::byte> states = rules_->TakeStates(bytes, windows);
  log_.erase(log_.begin(), log_.begin() + static_cast<std::ptrdiff_t>(asked) + 1);
  log_.push_front(
      {.kind = kGo, .body = MakeBody(ToWire(std::string())), .settled = true, .windows = windows});
  log_.push_front({.kind = kState,
                   .body = MakeBody(ToWire(
                       WorkersFile{.first = worker, .count = 1, .bytes = std::move(states)})),
                   .settled = true,
                   .windows = windows});
  log_[0].told = log_[1].told = true;
  states_ = 2;
  told_ = told_ - (asked + 1) + states_;
  answered_ = states_;
}

}  // namespace lopt
