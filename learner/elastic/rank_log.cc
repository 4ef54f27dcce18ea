#include "lopt/learner/elastic/rank_log.h"

#include <fmt/format.h>

#include <algorithm>

#include "lopt/base/error.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/run/worker_files.h"

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
  Entry entry{.kind = kind, .body = std::move(body)};
  if (kind == kWeights) {
    // The first two members of WorkerWeights.
    WireReader in(*entry.body);
    in("outer_step", entry.outer_step);
    in("theta", entry.theta_size);
  } else if (kind == kState) {
    States states = ReadStates(FromWire<WorkersFile>(*entry.body).bytes);
    outline_ = std::move(states.outline);
    windows_ = states.windows;
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
  if (kind == kGradients) {
    CheckGradients(asked, bytes);
  } else if (kind == kReady) {
    Require(bytes.empty(), "it says more than that it is ready: {} bytes", bytes.size());
  }
  if (asked.gives_states) {
    TakeStates(*next, bytes);
    return wanted;
  }
  asked.settled = true;
  answered_ = *next + 1;
  return wanted;
}

void RankLog::CheckGradients(const Entry& asked, const std::vector<std::byte>& bytes) const {
  const auto gradients = FromWire<std::vector<WorkerGradient>>(bytes);
  Require(gradients.size() == 1, "it sends {} gradients for one worker", gradients.size());
  const WorkerGradient& got = gradients[0];
  const AggregatedGradient& gradient = got.gradient;
  Require(got.worker == worker_, "it sends a gradient of worker {}, which is not its", got.worker);
  Require(got.first_window == asked.windows && got.windows == windows_per_update_,
          "it sends a gradient of {} windows from {} on, {} from {} on were asked for", got.windows,
          got.first_window, windows_per_update_, asked.windows);
  Require(gradient.outer_step == asked.outer_step,
          "it sends a gradient of outer step {}, {} was asked for", gradient.outer_step,
          asked.outer_step);
  const auto size = [](const Eigen::VectorXf& row) { return static_cast<uint64_t>(row.size()); };
  Require(size(gradient.gradient) == asked.theta_size,
          "it sends a gradient of {} numbers for {} weights", gradient.gradient.size(),
          asked.theta_size);
  Require(std::ssize(gradient.estimators) == estimators_,
          "it reports on {} estimators, the config has {}", gradient.estimators.size(),
          estimators_);
  const auto check_counts = [](const StepCounts& counts) {
    Require(counts.inner_steps >= 0 && counts.non_finite >= 0 && counts.episodes_ended >= 0,
            "it counts less than no steps");
  };
  check_counts(gradient.counts);
  for (const EstimatorReport& report : gradient.estimators) {
    check_counts(report.counts);
    Require(report.gradient.size() == 0 || size(report.gradient) == asked.theta_size,
            "it sends an estimator's gradient of {} numbers for {} weights", report.gradient.size(),
            asked.theta_size);
  }
}

RankLog::States RankLog::ReadStates(const std::vector<std::byte>& bytes) const {
  ArrayFile file = ParseArrayFile(bytes, "a worker's states");
  Outline outline;
  for (const auto& [name, array] : file.arrays) {
    outline[name] = {array.dtype(), array.shape()};
  }
  Require(outline_.empty() || outline == outline_,
          "the states of worker {} have other arrays or shapes than before", worker_);
  const int64_t windows =
      UnpackWorkers(std::move(file), {.first = worker_, .count = 1}, 0)[0].windows;
  return {.outline = std::move(outline), .windows = windows};
}

void RankLog::TakeStates(size_t asked, const std::vector<std::byte>& bytes) {
  auto files = FromWire<std::vector<SavedFile>>(bytes);
  const WorkerBlock block{.first = worker_, .count = 1};
  Require(files.size() == 1 && files[0].file.name == WorkersFileName(block),
          "it does not send the one file {}", WorkersFileName(block));
  auto [outline, windows] = ReadStates(files[0].bytes);
  Require(windows == log_[asked].windows, "its states have run {} windows, not {}", windows,
          log_[asked].windows);
  outline_ = std::move(outline);
  log_.erase(log_.begin(), log_.begin() + static_cast<std::ptrdiff_t>(asked) + 1);
  log_.push_front(
      {.kind = kGo, .body = MakeBody(ToWire(std::string())), .settled = true, .windows = windows});
  log_.push_front({.kind = kState,
                   .body = MakeBody(ToWire(WorkersFile{
                       .first = worker_, .count = 1, .bytes = std::move(files[0].bytes)})),
                   .settled = true,
                   .windows = windows});
  log_[0].told = log_[1].told = true;
  states_ = 2;
  told_ = told_ - (asked + 1) + states_;
  answered_ = states_;
}

}  // namespace lopt
