#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/learner/job/message_loop.h"
#include "lopt/learner/job/messages.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/job/placement.h"
#include "lopt/learner/job/updates.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/run/window_journal.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// What becomes of what Ranks::Collect brings in.
struct Collection {
  std::function<void(const WorkerGradient&)> before = [](const WorkerGradient&) {};
  std::function<void(std::vector<SavedFile>)> use;
};

// The ranks of a job, as the learner on rank 0 talks to them: all messages from and to their
// workers, and who computes what at the time.
class Ranks {
 public:
  Ranks(const MetaTrainConfig& config, const MetaTrainerOptions& options, Transport* transport,
        MessageLoop* loop);

  // Takes a message of a kind that goes from rank to learner. Throws Error with what a rank that
  // has failed says.
  void Handle(Message message);
  // What the workers' gradients are given to (Updates::Take); to be called before weights are given
  // to workers.
  void GiveGradientsTo(Updates* updates) { updates_ = updates; }
  // Windows that start from now on are noted there, after `before`.
  void NoteWindowsIn(WindowJournal* journal, std::function<void()> before) {
    journal_ = journal;
    before_noting_ = std::move(before);
  }

  // Waits until all ranks have said who they are, and compares them. Throws Error if they differ in
  // version, config or, unless that is allowed, instruction set or device. The device of the run is
  // that of the first rank that has one.
  void Meet();
  // Model of what the run's windows run on; empty: nobody who runs them has come yet. To be called
  // when the ranks have met, as is the next.
  const std::string& device() const { return ranks_[0].hello->device; }
  // Whoever comes is to run windows on this device, if it is not known yet.
  void ExpectDevice(const std::string& device);
  // Has all workers make their initial states, and waits for it.
  void Begin(const WorkerWeights& weights);
  // Has all workers go on from the states of a checkpoint, of which these are the windows, and
  // waits until they have them. Each rank reads the checkpoint in this directory; where that is
  // empty, the states were sent.
  void GoOn(const std::string& directory, std::span<const int64_t> windows);
  void SendStates(int rank, const std::vector<WorkerState>& states);
  // Ranks that do not compute start with these weights; the others get the newest there are when
  // they are to go on. So a rank computes once with each weights that are sent to it, has one at a
  // time, and what was sent is what was started.
  void HandOut(const WorkerWeights& weights);
  // From now on no rank is given weights.
  void Rest() { resting_ = true; }
  // Has all ranks write or send their workers' states when they do not compute, and returns at
  // once. A rank's gradients that come before its states go through `before`, too: their windows
  // are in what is saved. In the end `use` gets what the ranks said. One at a time.
  void Collect(const SaveRequest& request, Collection collection);
  // Tells all ranks that the run has ended: "finished", "interrupted" or "failed".
  void End(const std::string& how);

  int size() const { return static_cast<int>(ranks_.size()); }
  const WorkerBlock& block(int rank) const { return ranks_[static_cast<size_t>(rank)].block; }
  bool stop_asked() const { return stop_asked_; }

 private:
  // What the learner knows of one rank.
  struct Rank {
    WorkerBlock block;
    std::optional<Hello> hello;
    std::optional<std::string> data;  // what its answer that it is ready says
    bool computing = false;
    std::optional<std::vector<SavedFile>> saved;
  };

  std::string NameOf(int rank) const;
  void Broadcast(int kind, const std::vector<std::byte>& bytes);
  // Waits until all have their states. Throws Error if one computes on other data.
  void AwaitReady();
  // Waits until it is true of every rank.
  void WaitForAll(const std::function<bool(const Rank&)>& is_so);
  void ReportPlacement() const;
  void Start(std::span<const int> ranks);
  void TakeGradients(int from, const std::vector<std::byte>& bytes);
  void TakeSaved(Rank* rank, std::vector<SavedFile> saved);

  int64_t windows_per_update_;
  bool allow_isa_change_;
  bool learner_only_;
  Transport* transport_;
  MessageLoop* loop_;
  WindowJournal* journal_ = nullptr;
  std::function<void()> before_noting_;
  Updates* updates_ = nullptr;
  std::vector<Rank> ranks_;
  std::vector<int64_t> windows_;    // by worker, started so far
  std::vector<std::byte> weights_;  // the newest, as they are sent
  bool stop_asked_ = false;
  bool resting_ = false;
  std::optional<Collection> collection_;
};

}  // namespace lopt
