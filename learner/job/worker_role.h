#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "lopt/learner/experiment.h"
#include "lopt/learner/job/background.h"
#include "lopt/learner/job/messages.h"
#include "lopt/learner/job/placement.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// The logical workers of one rank: does what the learner's messages ask for, in the background, one
// after the other, and answers. Every rank has one, also the learner's.
class WorkerRole {
 public:
  WorkerRole(const Experiment* experiment, WorkerBlock block,
             std::function<void(std::string_view)> on_event, Background* background,
             std::function<void(int kind, std::vector<std::byte>)> answer);

  // Takes a message of a kind that goes from learner to rank, but kEnd.
  void Handle(const Message& message);

  bool saving() const { return saving_; }
  // Outer step of the newest weights.
  int64_t updates() const { return updates_; }

 private:
  void Begin(const WorkerWeights& weights);
  void TakeStates(WorkersFile file);
  void Go(const std::string& directory);
  void TakeWeights(WorkerWeights weights);
  void Save(const SaveRequest& request);

  std::vector<WorkerGradient> Compute(const WorkerWeights& weights);
  std::vector<SavedFile> WriteStates(const SaveRequest& request) const;

  const Experiment* experiment_;
  WorkerBlock block_;
  std::function<void(std::string_view)> on_event_;
  Background* background_;
  std::function<void(int kind, std::vector<std::byte>)> answer_;

  std::vector<WorkerState> states_;  // of the block; only the background touches it
  int64_t updates_ = 0;
  bool saving_ = false;
};

}  // namespace lopt
