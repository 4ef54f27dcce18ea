#include "lopt/learner/job/ranks.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/learner/job/hello.h"
#include "lopt/learner/run/worker_files.h"
#include "lopt/tasks/data/data_checksums.h"

namespace lopt {

Ranks::Ranks(const MetaTrainConfig& config, const MetaTrainerOptions& options, Transport* transport,
             MessageLoop* loop)
    : windows_per_update_(config.windows_per_update),
      allow_isa_change_(options.allow_isa_change),
      learner_only_(options.learner_only),
      transport_(transport),
      loop_(loop),
      ranks_(static_cast<size_t>(transport->size())),
      windows_(static_cast<size_t>(config.workers)) {
  for (int rank = 0; rank < transport->size(); ++rank) {
    ranks_[static_cast<size_t>(rank)].block =
        WorkersOfRank(config.workers, rank, transport->size(), options.learner_only);
  }
}

std::string Ranks::NameOf(int rank) const {
  const std::optional<Hello>& hello = ranks_[static_cast<size_t>(rank)].hello;
  return fmt::format("rank {} ({})", rank, hello ? hello->host : "host unknown");
}

void Ranks::Broadcast(int kind, const std::vector<std::byte>& bytes) {
  for (int rank = 0; rank < transport_->size(); ++rank) {
    transport_->Send(rank, kind, bytes);
  }
}

void Ranks::WaitForAll(const std::function<bool(const Rank&)>& is_so) {
  loop_->RunUntil([&] { return std::all_of(ranks_.begin(), ranks_.end(), is_so); });
}

void Ranks::Handle(Message message) {
  Rank& rank = ranks_[static_cast<size_t>(message.from)];
  switch (message.kind) {
    case kHello:
      rank.hello = FromWire<Hello>(message.bytes);
      break;
    case kReady:
      rank.data = FromWire<std::string>(message.bytes);
      break;
    case kGradients:
      TakeGradients(message.from, message.bytes);
      break;
    case kSaved:
      TakeSaved(&rank, FromWire<std::vector<SavedFile>>(message.bytes));
      break;
    case kStop:
      stop_asked_ = true;
      break;
    case kFailure:
      Fail("{}: {}", NameOf(message.from), FromWire<std::string>(message.bytes));
    default:
      Fail("the learner got a message of kind {}, which is not for it", message.kind);
  }
}

void Ranks::Meet() {
  WaitForAll([](const Rank& rank) { return rank.hello.has_value(); });
  Hello& learner = *ranks_[0].hello;
  for (int rank = 1; rank < transport_->size(); ++rank) {
    const Hello& other = *ranks_[static_cast<size_t>(rank)].hello;
    CompareHellos(learner, NameOf(rank), other, allow_isa_change_);
    if (learner.device.empty()) {
      learner.device = other.device;
    }
  }
  ReportPlacement();
}

// The transport, which compares those that come later, takes it from the learner's own message.
void Ranks::ExpectDevice(const std::string& device) {
  Hello& learner = *ranks_[0].hello;
  if (learner.device.empty()) {
    learner.device = device;
    transport_->Send(0, kHello, ToWire(learner));
  }
}

void Ranks::ReportPlacement() const {
  if (transport_->size() > 1) {
    spdlog::info("{}: {} worker{}, learner on {}", transport_->Description(), windows_.size(),
                 windows_.size() == 1 ? "" : "s", NameOf(0));
  }
  std::vector<int> idle;
  for (int rank = learner_only_ ? 1 : 0; rank < transport_->size(); ++rank) {
    if (ranks_[static_cast<size_t>(rank)].block.count == 0) {
      idle.push_back(rank);
    }
  }
  if (!idle.empty()) {
    spdlog::warn("workers is {}, so these ranks have none and stay idle: {}", windows_.size(),
                 fmt::join(idle, ", "));
  }
}

void Ranks::AwaitReady() {
  WaitForAll([](const Rank& rank) { return rank.data.has_value(); });
  for (int rank = 1; rank < transport_->size(); ++rank) {
    RequireSameDataOn(NameOf(rank), *ranks_[static_cast<size_t>(rank)].data, NameOf(0),
                      *ranks_[0].data);
  }
}

void Ranks::Begin(const WorkerWeights& weights) {
  Broadcast(kBegin, ToWire(weights));
  AwaitReady();
}

void Ranks::GoOn(const std::string& directory, std::span<const int64_t> windows) {
  windows_.assign(windows.begin(), windows.end());
  Broadcast(kGo, ToWire(directory));
  AwaitReady();
}

void Ranks::SendStates(int rank, const std::vector<WorkerState>& states) {
  PackWorkers(block(rank).first, states,
              [&](const WorkerBlock& range, std::vector<std::byte> bytes) {
                transport_->Send(
                    rank, kState,
                    ToWire(WorkersFile{
                        .first = range.first, .count = range.count, .bytes = std::move(bytes)}));
              });
}

void Ranks::HandOut(const WorkerWeights& weights) {
  weights_ = ToWire(weights);
  loop_->SetUpdates(weights.outer.outer_step);
  std::vector<int> idle;
  for (int r = 0; r < transport_->size(); ++r) {
    if (!ranks_[static_cast<size_t>(r)].computing) {
      idle.push_back(r);
    }
  }
  Start(idle);
}

// The journal knows of windows before any rank does.
void Ranks::Start(std::span<const int> ranks) {
  if (resting_) {
    return;
  }
  if (journal_ != nullptr) {
    before_noting_();
  }
  for (const int r : ranks) {
    const WorkerBlock& block = ranks_[static_cast<size_t>(r)].block;
    for (int64_t w = block.first; w < block.first + block.count; ++w) {
      windows_[static_cast<size_t>(w)] += windows_per_update_;
      if (journal_ != nullptr) {
        journal_->Started(w, windows_[static_cast<size_t>(w)]);
      }
    }
  }
  if (journal_ != nullptr) {
    journal_->Write();
  }
  for (const int r : ranks) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    if (rank.block.count > 0) {
      rank.computing = true;
      transport_->Send(r, kWeights, weights_);
    }
  }
}

// What the gradients say is dealt with before anything else is, so that the rank can send them
// again if they are no good.
void Ranks::TakeGradients(int from, const std::vector<std::byte>& bytes) {
  Rank& rank = ranks_[static_cast<size_t>(from)];
  const auto workers = static_cast<int64_t>(windows_.size());
  bool goes_on = false;
  try {
    for (WorkerGradient& gradient : FromWire<std::vector<WorkerGradient>>(bytes)) {
      Require(gradient.worker >= 0 && gradient.worker < workers,
              "a gradient came from worker {}, there are {}", gradient.worker, workers);
      if (collection_ && !rank.saved) {
        collection_->before(gradient);
      }
      goes_on = updates_->Take(std::move(gradient));
    }
  } catch (const std::exception& error) {
    if (transport_->RefuseAnswer(from, error.what())) {
      return;
    }
    throw;
  }
  rank.computing = false;
  if (goes_on) {
    Start(std::span(&from, 1));
  }
}

void Ranks::Collect(const SaveRequest& request, Collection collection) {
  collection_ = std::move(collection);
  Broadcast(kSave, ToWire(request));
}

void Ranks::TakeSaved(Rank* rank, std::vector<SavedFile> saved) {
  rank->saved = std::move(saved);
  if (!std::ranges::all_of(ranks_, [](const Rank& r) { return r.saved.has_value(); })) {
    return;
  }
  std::vector<SavedFile> all;
  for (Rank& r : ranks_) {
    std::ranges::move(*r.saved, std::back_inserter(all));
    r.saved.reset();
  }
  const auto use = std::move(collection_->use);
  collection_.reset();
  use(std::move(all));
}

void Ranks::End(const std::string& how) { Broadcast(kEnd, ToWire(how)); }

}  // namespace lopt
