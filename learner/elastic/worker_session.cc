#include "lopt/learner/elastic/worker_session.h"

#include <utility>
#include <vector>

#include "lopt/base/error.h"

namespace lopt {

WorkerSession::WorkerSession(const Experiment* experiment, int threads, Wakeup* wakeup,
                             std::function<void(Frame)> send)
    : experiment_(experiment), send_(std::move(send)), background_(threads, wakeup) {}

void WorkerSession::Handle(const Frame& frame) {
  if (frame.type == FrameType::kGrant) {
    Grant(frame);
    return;
  }
  const auto role = roles_.find(frame.lease);
  Require(role != roles_.end(), "the learner speaks of lease {}, which is not here", frame.lease);
  switch (frame.type) {
    case FrameType::kRevoke:
      Revoke(frame.lease);
      break;
    case FrameType::kTell:
      told_ = frame.body;
      [[fallthrough]];
    case FrameType::kTellSame:
      Require(told_ != nullptr, "the learner repeats what it has not said");
      role->second->Handle({.from = 0, .kind = frame.kind, .bytes = *told_});
      break;
    default:
      Fail("the learner sent a frame of type {}, which is not for a worker",
           static_cast<int>(frame.type));
  }
}

void WorkerSession::Grant(const Frame& frame) {
  const auto block = FromWire<LeasedBlock>(BytesOf(frame));
  Require(block.first >= 0 && block.count >= 1 &&
              block.first + block.count <= std::ssize(experiment_->workers),
          "the learner leases workers {} to {}, there are {}", block.first,
          block.first + block.count - 1, experiment_->workers.size());
  const int64_t lease = frame.lease;
  roles_[lease] = std::make_unique<WorkerRole>(
      experiment_, WorkerBlock{.first = block.first, .count = block.count},
      std::function<void(std::string_view)>(), &background_,
      [this, lease](int kind, std::vector<std::byte> bytes) {
        if (roles_.contains(lease)) {
          send_({.type = FrameType::kAnswer,
                 .lease = lease,
                 .kind = kind,
                 .body = MakeBody(std::move(bytes))});
        }
      });
}

void WorkerSession::Revoke(int64_t lease) {
  revoked_.insert(roles_.extract(lease));
  background_.Post([] {}, [this, lease] { revoked_.erase(lease); });
}

}  // namespace lopt
