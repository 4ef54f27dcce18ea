#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "learner/experiment.h"
#include "learner/job/background.h"
#include "learner/job/messages.h"
#include "learner/job/placement.h"
#include "learner/transport/transport.h"

namespace lopt {

// The logical workers of one rank: does what the learner's messages ask for, in the background, and
// answers. In mode "Sync" weights are computed with once; in mode "Async" the workers run on when
// their gradients were taken, each time with the newest weights there are. Every rank has one, also
// the learner's.
class WorkerRole {
 public:
  WorkerRole(const Experiment* experiment, WorkerBlock block,
             std::function<void(std::string_view)> on_event, Background* background,
             Transport* transport);

  // Takes a message of a kind that goes from learner to rank, but kEnd.
  void Handle(const Message& message);

  bool saving() const { return saving_; }
  // Outer step of the newest weights.
  int64_t updates() const { return updates_; }

 private:
  void Begin(const WorkerWeights& weights);
  void TakeState(WorkerFile file);
  void TakeWeights(WorkerWeights weights);
  void ComputeIfDue();
  void Save(const SaveRequest& request);
  void Answer(int kind, std::vector<std::byte> bytes = {});

  std::vector<WorkerGradient> Compute(const WorkerWeights& weights);
  std::vector<SavedWorker> WriteStates(const SaveRequest& request) const;

  bool async_;
  const Experiment* experiment_;
  WorkerBlock block_;
  std::function<void(std::string_view)> on_event_;
  Background* background_;
  Transport* transport_;

  std::vector<WorkerState> states_;  // of the block; only the background touches it
  std::shared_ptr<const WorkerWeights> weights_;
  int64_t computed_step_ = -1;  // outer step of the weights last computed with
  int64_t updates_ = 0;
  bool computing_ = false;
  bool untaken_ = false;  // mode "Async": gradients were sent that the learner has not taken
  bool saving_ = false;
  bool last_save_ = false;
};

}  // namespace lopt
