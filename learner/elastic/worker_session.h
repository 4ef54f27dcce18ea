#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "lopt/learner/elastic/frame.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/job/background.h"
#include "lopt/learner/job/worker_role.h"

namespace lopt {

// A worker process while it is connected: a worker role for each lease, all of them on one
// background.
class WorkerSession {
 public:
  // Frames for the learner go to `send`; work that is done notifies `wakeup`. Throws Error unless
  // threads >= 1.
  WorkerSession(const Experiment* experiment, int threads, Wakeup* wakeup,
                std::function<void(Frame)> send);

  // Takes a frame of kGrant, kRevoke, kTell or kTellSame. Throws Error if it is of another type or
  // does not go with those before.
  void Handle(const Frame& frame);
  // Sends what work that is done has given; false if there is none. Throws what the work threw.
  bool Poll() { return background_.Poll(); }
  // Whether nothing is to be computed.
  bool Idle() const { return background_.Idle(); }

 private:
  void Grant(const Frame& frame);
  void Revoke(int64_t lease);

  const Experiment* experiment_;
  std::function<void(Frame)> send_;
  std::map<int64_t, std::unique_ptr<WorkerRole>> roles_;    // by lease
  std::map<int64_t, std::unique_ptr<WorkerRole>> revoked_;  // still have work under way
  FrameBody told_;                                          // the body of the last kTell
  Background background_;  // the last: its work ends before what it works on goes
};

}  // namespace lopt
