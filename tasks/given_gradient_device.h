#pragma once

#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/base/replica_device.h"

namespace lopt {

// A task whose losses and gradients the device has been given before its kernel runs, by
// TaskFamily::Evaluate: of replicas that are not resident, whose gradients are in place.
struct GivenGradientDevice {
  struct Args {
    const float* losses;  // [B], of the replicas of the window
  };

  static int64_t ScratchFloats(const Args&, int /*threads*/) { return 0; }

  static LOPT_DEVICE_INLINE void Evaluate(const Block& block, const Args& args,
                                          const DeviceEvaluation& e, const Replica& replica) {
    block.Once([&] { *replica.loss = args.losses[e.replica]; });
  }
};

}  // namespace lopt
