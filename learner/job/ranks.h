#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "learner/job/message_loop.h"
#include "learner/job/messages.h"
#include "learner/job/meta_trainer.h"
#include "learner/job/placement.h"
#include "learner/meta_train_config.h"
#include "learner/run/window_journal.h"
#include "learner/transport/transport.h"

namespace lopt {

// The ranks of a job, as the learner on rank 0 talks to them: all messages from and to their
// workers, and who computes what at the time.
class Ranks {
 public:
  Ranks(const MetaTrainConfig& config, const MetaTrainerOptions& options, Transport* transport,
        MessageLoop* loop);

  // Takes a message of a kind that goes from rank to learner. Throws Error with what a rank that
  // has failed says.
  void Handle(Message message);
  // Who takes the workers' gradients; to be called before weights are handed out.
  void OnGradient(std::function<void(WorkerGradient)> take) { take_ = std::move(take); }
  // Windows that start from now on are noted there.
  void NoteWindowsIn(WindowJournal* journal) { journal_ = journal; }

  // Waits until all ranks have said who they are, and compares them. Throws Error if they differ in
  // version, config or (unless that is allowed) instruction set.
  void Meet();
  // Has all workers make their initial states, and waits for it.
  void Begin(const WorkerWeights& weights);
  // Has all workers go on from these states, and waits until they have them.
  void GoOnFrom(const std::vector<WorkerState>& workers);
  // A rank that gets weights starts with them at once, unless it computes: then it does when it has
  // ended.
  void HandOut(const WorkerWeights& weights);
  // Has all workers say how far they are and write or send their states, and gives `use` what they
  // said. Gradients that come from a rank after that are held back until `use` has returned.
  void Collect(const SaveRequest& request,
               const std::function<void(const std::vector<SavedWorker>&)>& use);
  // Tells all ranks that the run has ended: "finished", "interrupted" or "failed".
  void End(const std::string& how);

  bool stop_asked() const { return stop_asked_; }
  bool collecting() const { return collecting_; }
  // By worker, started so far.
  std::span<const int64_t> windows() const { return windows_; }

 private:
  // What the learner knows of one rank.
  struct Rank {
    WorkerBlock block;
    std::optional<Hello> hello;
    bool ready = false;
    int64_t weights_sent = -1;  // outer step
    int64_t computing = -1;     // outer step of the weights it computes with; -1: nothing
    std::optional<std::vector<SavedWorker>> saved;
    std::vector<WorkerGradient> held_back;  // came after `saved`
  };

  std::string NameOf(int rank) const;
  void Broadcast(int kind, const std::vector<std::byte>& bytes);
  // Waits until it is true of every rank.
  void WaitForAll(const std::function<bool(const Rank&)>& is_so);
  void Compare(int rank, const Hello& mine, const Hello& other) const;
  void ReportPlacement() const;
  std::span<int64_t> WindowsIn(const WorkerBlock& block);
  void NoteStarted(Rank* rank);
  void TakeGradients(int from, std::vector<WorkerGradient> gradients);
  void TakeGradient(WorkerGradient gradient);

  int64_t windows_per_update_;
  bool run_on_;  // a rank goes on when its gradients were taken, without new weights
  bool allow_isa_change_;
  bool learner_only_;
  Transport* transport_;
  MessageLoop* loop_;
  WindowJournal* journal_ = nullptr;
  std::function<void(WorkerGradient)> take_;
  std::vector<Rank> ranks_;
  std::vector<int64_t> windows_;  // by worker, started so far
  bool stop_asked_ = false;
  bool collecting_ = false;
  bool last_collection_ = false;  // the workers compute nothing more
};

}  // namespace lopt
